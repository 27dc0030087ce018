-- lib: base records
-- Writes a record. KEYS: the space's prefix. ARGV: key, value, time to live,
-- condition, version, nonce. Reply: nothing on a conflict, or version, expiry.
local key, ttl, when = ARGV[1], tonumber(ARGV[3]), ARGV[4]
local hash = base .. 'v:' .. key
local old = record(key)
if old and old[3] == ARGV[6] then return { tonumber(old[1]), num(old[2]) or 0 } end
if when == '1' and old then return false end
if when == '2' and (not old or old[1] ~= ARGV[5]) then return false end
local version, expires = max((old and tonumber(old[1]) or 0) + 1, now), ttl > 0 and now + ttl or 0
call('HSET', hash, 'v', version, 'b', ARGV[2], 'n', ARGV[6], 'e', ttl > 0 and expires or NEVER)
call('ZADD', base .. 'i', 0, key)
if ttl > 0 then
  call('PEXPIREAT', hash, int(floor(expires / 1000) + 1))
  call('ZADD', base .. 'x', expires, key)
else
  call('PERSIST', hash)
  call('ZREM', base .. 'x', key)
end
sweep()
return { version, expires }
