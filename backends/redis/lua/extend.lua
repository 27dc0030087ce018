-- lib: base queue
-- Prolongs leases.
-- KEYS: the queue's prefix. ARGV: lease, then lane, mark (token, ':', id, line
-- feed) and id of each.
-- Reply: until, then for each 0 lost, 1 extended, 2 extended and to be cancelled.
local q = open(KEYS[1])
local untl = q.now + ARGV[1]
local untls = int(untl)
local out = { untl }
call('HDEL', q.M, '-') -- a first write that is allowed when memory is full

for p = 2, #ARGV, 3 do
  local lane, mark = ARGV[p], ARGV[p + 1]
  local K = call('HGET', q.K, lane)
  if not K or string.find(K, mark, 43, true) ~= 43 then
    out[#out + 1] = 0
  else
    zadd(q.R .. sub(K, 2, 2), untls, lane)
    -- A job that is to be cancelled is not plain.
    out[#out + 1] = byte(K) ~= 112 and call('HEXISTS', q.O .. ARGV[p + 2], 'x') == 1 and 2 or 1
  end
end
flush()
return out
