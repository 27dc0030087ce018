-- Unbinds a queue from a topic. KEYS: prefixes of the queue and the topic. ARGV:
-- the queue's name.
redis.call('ZREM', KEYS[2] .. 'b', ARGV[1])
redis.call('HDEL', KEYS[2] .. 'h', ARGV[1])
redis.call('SREM', KEYS[1] .. 't', KEYS[2])
return 1
