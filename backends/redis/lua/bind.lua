-- lib: base queue
-- Binds a queue to a topic. KEYS: prefixes of the queue and the topic. ARGV: the
-- queue's name. Reply: 1 when it made the queue.
local q, topic = open(KEYS[1]), KEYS[2]
create(q)
call('ZADD', topic .. 'b', 0, ARGV[1])
call('HSETNX', topic .. 'h', ARGV[1], q.now)
call('SADD', q.Q .. 't', topic)
return q.created and 1 or 0
