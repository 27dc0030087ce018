-- A record is a hash with value b, version v, expiry e and the nonce n of its
-- last write; i lists the keys by name, x those that expire by time.
local base, now = KEYS[1], clock()

local function record(key)
  local r = call('HMGET', base .. 'v:' .. key, 'v', 'e', 'n', 'b')
  if not r[1] or r[2] and tonumber(r[2]) <= now then return nil end
  return r
end

local function erase(key)
  call('UNLINK', base .. 'v:' .. key)
  call('ZREM', base .. 'i', key)
  call('ZREM', base .. 'x', key)
end

-- sweep erases some records that have expired.
local function sweep()
  for _, key in ipairs(call('ZRANGEBYSCORE', base .. 'x', '-inf', now, 'LIMIT', 0, 20)) do
    if not record(key) then erase(key) else call('ZREM', base .. 'x', key) end
  end
end
