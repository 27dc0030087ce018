-- Lists the queues bound to a topic. KEYS: the topic's prefix. Reply: name and
-- time of each.
local out = {}
for i, name in ipairs(redis.call('ZRANGE', KEYS[1] .. 'b', 0, -1)) do
  out[2 * i - 1], out[2 * i] = name, redis.call('HGET', KEYS[1] .. 'h', name) or '0'
end
return out
