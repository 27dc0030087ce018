-- Answers are kept for 15 to 30 seconds by the nonce of their request, so that a
-- request that is sent again because its answer was lost is not done again.
local function nonce_key(base, now, back)
  return base .. 'n:' .. int(floor(now / GENERATION) - back)
end

local function recall(base, now, nonce)
  return call('HGET', nonce_key(base, now, 0), nonce) or call('HGET', nonce_key(base, now, 1), nonce)
end

local function remember(base, now, nonce, answer)
  local key = nonce_key(base, now, 0)
  call('HSET', key, nonce, answer)
  if call('HLEN', key) == 1 then
    call('EXPIRE', key, '60')
    call('UNLINK', nonce_key(base, now, 2))
  end
end
