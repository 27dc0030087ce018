-- The least that could hand out and finish jobs of groups in order, in a batch:
-- take the groups whose turn it is, pop one job of each, put back those that have
-- more. No leases, no attempts, no recovery: nothing here survives a crash.
local n = tonumber(ARGV[1])
local groups = redis.call('ZPOPMIN', KEYS[1], n)
local done = 0
for i = 1, #groups, 2 do
  local line = ARGV[2] .. groups[i]
  if redis.call('LPOP', line) then
    done = done + 1
  end
  if redis.call('EXISTS', line) == 1 then
    redis.call('ZADD', KEYS[1], groups[i + 1] + 1000, groups[i])
  end
end
return done
