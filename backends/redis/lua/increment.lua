-- Adds to a counter. KEYS: the space's prefix. ARGV: key, delta, time to live in
-- milliseconds or 0. Reply: the sum as a text, which Lua's numbers can not hold.
local key = KEYS[1] .. 'c:' .. ARGV[1]
redis.call('INCRBY', key, ARGV[2])
if ARGV[3] ~= '0' then redis.call('PEXPIRE', key, ARGV[3]) end
return redis.call('GET', key)
