-- lib: base queue
-- Sets a queue's configuration. KEYS: the queue's prefix. ARGV: it as set, then
-- its ten values with defaults filled in. Reply: 1 when it made the queue.
local q = open(KEYS[1])
create(q)
local cfg = {}
for i = 2, #ARGV do cfg[i - 1] = tonumber(ARGV[i]) end
call('HSET', q.M, 'c', ARGV[1], 'C', cmsgpack.pack(cfg))
return q.created and 1 or 0
