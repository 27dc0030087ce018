-- lib: base queue
-- Gives daily counters. KEYS: the queue's prefix. ARGV: number of days.
-- Reply: nothing, or today, then completed, failed, dead, cancelled of each day.
local q = open(KEYS[1])
if not q.exists then return false end
local today, days = floor(q.now / DAY), tonumber(ARGV[1])
local out = { today }
for day = today - days + 1, today do
  local v = call('HMGET', q.Q .. 'd:' .. int(day), 'c', 'f', 'd', 'x')
  for i = 1, 4 do out[#out + 1] = num(v[i]) or 0 end
end
return out
