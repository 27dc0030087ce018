-- Stores jobs in one queue that have neither topic, delay nor dedup key. It is
-- publish.lua for most jobs, written for speed: without functions, which a script
-- makes anew in each run, and with texts the client has made.
-- KEYS: the queue's prefix.
-- ARGV: nonce, retry?, number of jobs, the lane of each job's group or '', then for
-- each job: id, flags, and its text from the tier on. Flags are digits: own id?,
-- anything beside the contents, or a large one, and so a long text?, own number of attempts?, priority.
-- Reply: 1 when it made the queue, Seq of the first job stored, numbers of the
-- jobs whose id was taken.
local call, fmt, sub, byte, floor = redis.call, string.format, string.sub, string.byte, math.floor
local Q, n = KEYS[1], tonumber(ARGV[3])
local m = call('HMGET', Q .. 'm', 'q', 'i', 'C')
local t = call('TIME')
local now = t[1] * 1000000 + t[2]
local generation = floor(now / GENERATION)
if ARGV[2] == '1' then
  local answer = call('HGET', Q .. 'n:' .. fmt('%d', generation), ARGV[1]) or
    call('HGET', Q .. 'n:' .. fmt('%d', generation - 1), ARGV[1])
  if answer then return cmsgpack.unpack(answer) end
end
local last = tonumber(m[1] or 0)
if last > now then now = last end
local nows, cfg = fmt('%d', now), m[3] and cmsgpack.unpack(m[3]) or CONFIG
local attempts = cfg[ATTEMPTS] ~= DEFAULTATTEMPTS and fmt('%010d', cfg[ATTEMPTS])
local blocks = call('EXISTS', Q .. 'B') == 1

local J = Q .. 'j:'
local seq = last < now and now - 1 or last
local first, taken, due, tiers = seq + 1, {}, nil, {}
local pending, lines, ready, tier_of, fresh, names = {}, {}, {}, {}, {}, {}
-- Tiers of the groups that have jobs. A job without a group asks for lane '', which none has.
for i = 1, n, CHUNK do
  local last = math.min(i + CHUNK - 1, n)
  local known = call('HMGET', Q .. 'T', unpack(ARGV, 3 + i, 3 + last))
  for k = 1, last - i + 1 do
    if known[k] then tier_of[ARGV[2 + i + k]] = known[k] + 0 end
  end
end
local texts = {}
local p = 4 + n
for i = 1, n do
  local lane, id, flags, rest = ARGV[3 + i], ARGV[p], ARGV[p + 1], ARGV[p + 2]
  p = p + 3
  if attempts and byte(flags, 3) == 48 then rest = sub(rest, 1, 1) .. attempts .. sub(rest, 12) end
  local tier = byte(flags, 4) - 48
  local known = tier_of[lane]
  if known and known ~= tier then rest, tier = known .. sub(rest, 2), known end
  local seqs = fmt('%d', seq + 1)
  local text = (byte(flags, 2) == 48 and '0' or PENDINGHEAD) .. seqs .. rest
  if byte(flags) == 49 and not call('SET', J .. id, text, 'NX') then
    taken[#taken + 1] = i
  else
    seq = seq + 1
    local member, k = seqs .. ':' .. id, #pending
    if byte(flags) == 48 then
      local e = #texts
      texts[e + 1], texts[e + 2] = J .. id, text
    end
    pending[k + 1], pending[k + 2] = seqs, member
    if tier > 0 then tiers[tier] = (tiers[tier] or 0) + 1 end
    if lane == '' then
      local r = ready[tier]
      if not r then r = {}; ready[tier] = r end
      k = #r
      r[k + 1], r[k + 2] = nows, '{' .. member
      due = due or now
    else
      local line = lines[lane]
      if not line then
        lines[lane] = member
      elseif type(line) == 'string' then
        lines[lane] = { line, member }
      else
        line[#line + 1] = member
      end
      if not known then
        tier_of[lane] = tier
        k = #fresh
        fresh[k + 1], fresh[k + 2], names[k + 1], names[k + 2] = lane, sub(flags, 4, 4), '0', lane
        if not blocks or not call('HGET', Q .. 'B', lane) then
          local r = ready[tier]
          if not r then r = {}; ready[tier] = r end
          k = #r
          due = now - cfg[HEADSTART]
          r[k + 1], r[k + 2] = fmt('%d', due), lane
        end
      end
    end
    if cfg[EVENTS] > 0 then
      local at = byte(flags, 2) == 48 and 15 or 79
      local glen, klen = tonumber(sub(rest, at, at + 2)), tonumber(sub(rest, at + 3, at + 5))
      call('XADD', Q .. 'e', 'MINID', '~', fmt('%d', math.max(0, floor((now - cfg[EVENTS]) / 1000))), '*',
        'k', 'enqueued', 't', nows, 'i', id, 'g', sub(lane, #Q + 2), 'j', sub(rest, at + 6 + glen, at + 5 + glen + klen), 'a', '0', 'e', '', 'w', '')
    end
  end
end

local stored = seq >= first
if stored then
  for i = 1, #texts, CHUNK do call('MSET', unpack(texts, i, math.min(i + CHUNK - 1, #texts))) end
  call('HSET', Q .. 'm', 'q', fmt('%d', seq))
  for i = 1, #pending, CHUNK do call('ZADD', Q .. 's2', unpack(pending, i, math.min(i + CHUNK - 1, #pending))) end
  for lane, line in pairs(lines) do
    if type(line) == 'string' then
      call('RPUSH', lane, line)
    else
      for i = 1, #line, CHUNK do call('RPUSH', lane, unpack(line, i, math.min(i + CHUNK - 1, #line))) end
    end
  end
  for i = 1, #fresh, CHUNK do
    call('HSET', Q .. 'T', unpack(fresh, i, math.min(i + CHUNK - 1, #fresh)))
    call('ZADD', Q .. 'i', unpack(names, i, math.min(i + CHUNK - 1, #names)))
  end
  for tier, r in pairs(ready) do
    for i = 1, #r, CHUNK do call('ZADD', Q .. 'r' .. tier, unpack(r, i, math.min(i + CHUNK - 1, #r))) end
  end
  for tier, k in pairs(tiers) do call('HINCRBY', Q .. 'c', tier, k) end
  -- A claim that came back short waits; so may one that met no queue.
  if due and (m[2] or not m[1]) then
    call('HDEL', Q .. 'm', 'i')
    redis.pcall('PUBLISH', Q .. 'w', 'r')
  end
end
local answer = { stored and not m[1] and 1 or 0, first, taken }
if stored then
  local key = Q .. 'n:' .. fmt('%d', generation)
  call('HSET', key, ARGV[1], cmsgpack.pack(answer))
  if call('HLEN', key) == 1 then
    call('EXPIRE', key, '60')
    call('UNLINK', Q .. 'n:' .. fmt('%d', generation - 2))
  end
end
return answer
