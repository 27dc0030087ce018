-- lib: base queue text job
-- Removes finished jobs whose retention is over, and old events.
-- KEYS: the queue's prefix. ARGV: how many. Reply: how many were removed.
local q = open(KEYS[1])
if not q.exists then return 0 end
local due = call('ZRANGEBYSCORE', q.Q .. 'x', '-inf', q.now, 'LIMIT', 0, ARGV[1])
for _, member in ipairs(due) do
  local j = load(q, sub(member, 18))
  if j then drop(q, j) else zrem(q.Q .. 'x', member) end
end
call('XTRIM', q.Q .. 'e', 'MINID', int(max(0, floor((q.now - q.cfg[EVENTS]) / 1000))))
close(q)
return #due
