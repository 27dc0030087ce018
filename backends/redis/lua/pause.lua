-- lib: base queue
-- Pauses or resumes a queue. KEYS: the queue's prefix. ARGV: pause?
-- Reply: -1 no queue, 0 it was so already, 1 changed.
local q = open(KEYS[1])
if not q.exists then return -1 end
call('HDEL', q.M, '-') -- a first write that is allowed when memory is full
if ARGV[1] == '1' then return call('HSETNX', q.M, 'p', 1) end
local changed = call('HDEL', q.M, 'p')
if changed == 1 then
  call('HDEL', q.M, 'i')
  tell(q.Q .. 'w', 'r')
end
return changed
