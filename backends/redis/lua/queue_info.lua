-- lib: base queue
-- Describes a queue. KEYS: the queue's prefix.
-- Reply: nothing, or now, paused?, configuration as set, Seq of the oldest
-- pending job, number of groups, jobs by state (7), by tier above 0 (4).
local q = open(KEYS[1])
if not q.exists then return false end
local out = { q.now, q.paused and 1 or 0, call('HGET', q.M, 'c') or '' }
out[4] = sub(call('ZRANGE', q.S .. PENDING, '0', '0')[1] or '', 1, 16)
out[5] = call('ZCARD', q.Q .. 'i')
for state = 1, 7 do
  out[#out + 1] = state == RUNNING and call('HLEN', q.K) or call('ZCARD', q.S .. state)
end
local tiers = call('HMGET', q.Q .. 'c', 1, 2, 3, 4)
for tier = 1, 4 do out[#out + 1] = num(tiers[tier]) or 0 end
return out
