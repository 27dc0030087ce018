-- Leases groups that are due.
-- KEYS: the queue's prefix.
-- ARGV: how many, lowest tier, lease, owner, nonce, retry?, numbers of two digits
--   from 00 on, by turn?, how many jobs to read at once.
-- Reply: 0 no queue, 1 paused, else 2, now, next, until, first fence, specials,
-- member and text of each lease's job..; or 3 and the same for leases that an
-- earlier try made, where the lease of each comes as a list instead of the first
-- fence. A special is the number of a lease, from 1, with the other things and
-- failures of its job.
-- A script makes its functions anew in each run, so the usual way is written
-- without, and the rest makes its own when it is needed.
local call, sub, byte, fmt, min, max = redis.call, string.sub, string.byte, string.format, math.min, math.max
local Q, limit, lowest, numbers = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[7]
local nonce, owner = ARGV[5] .. '.', '\n' .. ARGV[4]
local m = call('HMGET', Q .. 'm', 'q', 'p', 'i', 'C')
if not m[1] then return { 0 } end
local t = call('TIME')
local now, seq = t[1] * 1000000 + t[2], tonumber(m[1])
if seq > now then now = seq end
local nows, untl = fmt('%d', now), now + ARGV[3]
local untls = fmt('%d', untl)
local fence = max(seq + 1, now)
local n, specials = 0, {}
local out = { 2, now, 0, untl, fence, specials }

-- slow: base queue text job line group die {
local q = context(Q, m, now, nows)

-- recover ends the lease K of a lane that has run out.
local function recover(lane, K)
  call('HDEL', q.K, lane)
  local member = string.match(K, '^([^\n]*)\n', 68)
  local id = sub(member, 18)
  local v = call('GETRANGE', q.J .. id, 0, 895)
  local j = v ~= '' and parse(q, id, v)
  if not j or j.seqs ~= sub(member, 1, 16) then return end
  leased(j, K)
  record_failure(q, j, EXPIRED, '', j.owner)
  bump(q, 'f', 1)
  emit(q, 'lease_lost', j.id, j.g, j.k, j.a, EXPIRED, j.owner)
  if not j.x and not exhausted(j) then
    set_state(q, j, PENDING, j.place)
    save(j)
    if j.g ~= '' then stand(q, lane, j.place, member) end
    return flush()
  end
  if j.g == '' then call('ZREM', q.R .. j.t, lane) end
  if j.x then
    finish(q, j, CANCELLED)
    emit(q, 'cancelled', j.id, j.g, j.k, j.a, '', j.owner)
  else
    die(q, j, EXPIRED, j.owner)
  end
  flush()
end

-- enter_lane gives the member to lease in a lane that may have an old lease K, be
-- blocked, empty or not due. It takes it out of its line.
local function enter_lane(tier, lane, K)
  if K then recover(lane, K) end
  if byte(lane) == 123 then return call('ZSCORE', q.R .. tier, lane) and sub(lane, 2) end
  local member, block = head_of(q, lane), blocked(q, lane)
  if not member then return drained(q, lane, tier, block) end
  if block then
    call('ZREM', q.R .. tier, lane)
    return nil
  end
  local run = late(q, lane) and run_at(q, member) or 0
  if run > now then
    call('ZADD', q.R .. tier, int(run), lane)
    return nil
  end
  call('LPOP', lane)
  return member
end

-- forget takes a member out of everything when its job has vanished.
local function forget(tier, lane, member)
  for state = SCHEDULED, CANCELLED do call('ZREM', q.S .. state, member) end
  if byte(lane) == 123 then call('ZREM', q.R .. tier, lane) else head_changed(q, lane) end
end

-- hand_over adds what a job with flags has beside its text.
local function hand_over(number, id, flags)
  specials[#specials + 1] = { number, flags >= 4 and call('HGETALL', q.O .. id) or {},
    flags % 2 == 1 and call('LRANGE', q.Q .. 'f:' .. id, '0', '-1') or {} }
end

-- found gives the leases that an earlier try of this claim made.
local function found()
  local list = {}
  for _, K in ipairs(call('HVALS', q.K)) do
    local j = sub(K, 43, 63) == nonce and load(q, sub(string.match(K, '^([^\n]*)', 68), 18))
    if j and j.K == K then list[#list + 1] = j end
  end
  if #list == 0 then return nil end
  table.sort(list, function(a, b) return sub(a.K, 64, 66) < sub(b.K, 64, 66) end)
  local leases = {}
  out[1], out[5] = 3, leases
  for i, j in ipairs(list) do
    out[2], out[4] = tonumber(j.C), tonumber(call('ZSCORE', q.R .. sub(j.K, 2, 2), j.lane) or untl)
    leases[i], out[5 + 2 * i], out[6 + 2 * i] = j.K, j.member, call('GET', j.key)
    if j.n > 0 then hand_over(i, j.id, j.n) end
  end
  return out
end

-- join_due lets jobs join that stand aside and whose time has come, a bounded
-- number at a time.
local function join_due()
  local due = call('ZRANGEBYSCORE', q.Q .. 'a', '-inf', nows, 'WITHSCORES', 'LIMIT', '0', '200')
  for i = 1, #due, 2 do
    if effort > EFFORT then break end
    call('ZREM', q.Q .. 'a', due[i])
    local j = load(q, sub(due[i], 18))
    if j then
      local at = tonumber(due[i + 1])
      local place = j.place == 1 and at or j.place
      set_state(q, j, PENDING, place)
      flush()
      join(q, j, place, at)
    end
  end
end

-- shares_of_tiers gives how many of the lanes that have waited longest are in each
-- tier. Of equal ones the higher tier is first.
local function shares_of_tiers(highest, lowest)
  local due, at, shares = {}, {}, {}
  for tier = highest, lowest, -1 do
    due[tier] = call('ZRANGEBYSCORE', q.R .. tier, '-inf', nows, 'WITHSCORES', 'LIMIT', '0', limit)
    at[tier], shares[tier] = 1, 0
  end
  for _ = 1, limit do
    local first, score
    for tier = highest, lowest, -1 do
      local s = tonumber(due[tier][2 * at[tier]] or nil)
      if s and (not score or s < score) then first, score = tier, s end
    end
    if not first then break end
    at[first], shares[first] = at[first] + 1, shares[first] + 1
  end
  return shares
end

local function started(v, id, attempt)
  v = whole(v)
  local glen, klen = tonumber(sub(v, 121, 123)), tonumber(sub(v, 124, 126))
  emit(q, 'started', id, sub(v, 127, 126 + glen), sub(v, 127 + glen, 126 + glen + klen), attempt, '', sub(owner, 2))
end

return { q = q, found = found, join_due = join_due, enter_lane = enter_lane, forget = forget, hand_over = hand_over,
  shares_of_tiers = shares_of_tiers, started = started, close = close }
-- }

if ARGV[6] == '1' then
  local earlier = slow().found()
  if earlier then return earlier end
end
if m[2] then return { 1 } end

-- Few queues have jobs aside, blocked or delayed groups, or jobs above tier 0
-- (which are counted in c).
local careful, highest = false, 0
if call('EXISTS', Q .. 'a', Q .. 'B', Q .. 'D', Q .. 'c') > 0 then
  if call('EXISTS', Q .. 'a') == 1 then slow().join_due() end
  careful = call('EXISTS', Q .. 'B', Q .. 'D') > 0
  highest = 4
end
local events = m[4] and cmsgpack.unpack(m[4])[EVENTS] > 0

local J, LEASES = Q .. 'j:', Q .. 'K'
local DIGIT = { [0] = '0', '1', '2', '3', '4', '5', '6', '7', '8', '9' }
local cut, budget, size, round, few = false, limit + 1000, 0, tonumber(ARGV[9]), 8
local shares = highest > lowest and ARGV[8] == '1' and slow().shares_of_tiers(highest, lowest)
for tier = highest, lowest, -1 do
  local most = shares and min(limit, n + shares[tier]) or limit
  local tiers = DIGIT[tier]
  local ready = Q .. 'r' .. tiers
  local fresh = tiers .. fmt('%d', fence) .. nows
  local ten, head
  local first = 'p' .. fresh .. '00000001' .. nonce
  while n < most and not cut do
    -- Few first, to see how large they are: what is read for nothing takes time, too.
    local want = min(most - n, few or round)
    if n > 0 then want = max(1, min(want, math.floor((REPLYBYTES - size) * n / size))) end
    few = nil
    local lanes = call('ZRANGEBYSCORE', ready, '-inf', nows, 'LIMIT', '0', want)
    local count = #lanes
    if count == 0 then break end
    local held = call('HMGET', LEASES, unpack(lanes))
    local blocks = careful and call('HMGET', Q .. 'B', unpack(lanes))
    local delays = careful and call('HMGET', Q .. 'D', unpack(lanes))
    local members, keys = {}, {}
    for i = 1, count do
      local lane, member = lanes[i], nil
      if held[i] then
        member = slow().enter_lane(tiers, lane, held[i])
      elseif byte(lane) == 123 then
        member = sub(lane, 2)
      elseif careful and (blocks[i] or delays[i]) then
        member = slow().enter_lane(tiers, lane)
      else
        member = call('LPOP', lane)
        if not member then slow().enter_lane(tiers, lane) end
      end
      members[i], keys[i] = member, member and J .. sub(member, 18) or J
    end
    local jobs = call('MGET', unpack(keys))
    local dues, pending, leases, others = {}, {}, {}, nil
    local k = 0 -- leases of this round
    for i = 1, count do
      local member, v = members[i], jobs[i]
      if member and not v then
        slow().forget(tiers, lanes[i], member)
      elseif member and (cut or n > 0 and size + #v > REPLYBYTES) then
        -- A reply must not take longer than a client waits for it.
        cut = true
        if byte(lanes[i]) ~= 123 then call('LPUSH', lanes[i], member) end
      elseif member then
        local lease
        local unit = n % 10
        if unit == 0 or not ten then
          ten = sub(numbers, (n - unit) / 5 + 1, (n - unit) / 5 + 2)
          head = first .. ten
        end
        k, n = k + 1, n + 1
        if byte(v) == 48 then -- nothing was ever done to it
          lease = head .. DIGIT[unit] .. '.' .. member .. owner
          pending[#pending + 1] = member
        else
          local state, flags, attempt = sub(v, 1, 1), byte(v, 2) - 48, fmt('%08d', sub(v, 3, 10) + 1)
          local plain = flags == 0 and sub(v, 57, 72) == ZEROS
          lease = (plain and 'p' or 's') .. fresh .. attempt .. nonce .. ten .. DIGIT[unit] .. '.' .. member .. owner
          if state == '2' then
            pending[#pending + 1] = member
          else
            others = others or {}
            others[state] = others[state] or {}
            table.insert(others[state], member)
          end
          if flags > 0 then slow().hand_over(n, sub(member, 18), flags) end
        end
        if events then
          if n == 1 then call('HDEL', Q .. 'm', '-') end -- a first write that is allowed when memory is full
          slow().started(v, sub(member, 18), tonumber(sub(lease, 35, 42)))
        end
        local a, lane = 2 * k - 1, lanes[i]
        dues[a] = untls
        leases[a] = lane
        a = a + 1
        dues[a] = lane
        leases[a] = lease
        a = 5 + 2 * n
        out[a] = member
        out[a + 1] = v
        size = size + #v
      end
    end
    -- Removals come first: they are allowed when the server's memory is full, and
    -- after a script's first write all others are.
    if k > 0 then
      if #pending > 0 then call('ZREM', Q .. 's2', unpack(pending)) end
      for state, list in pairs(others or {}) do call('ZREM', Q .. 's' .. state, unpack(list)) end
      call('HSET', LEASES, unpack(leases))
      call('ZADD', ready, unpack(dues))
    end
    -- Lanes that could not be leased are out of the way for good, so a bound on
    -- them only spreads them over several claims.
    budget = budget - count
    if budget <= 0 then cut = true end
    if count < want then break end
  end
end

if n > 0 then call('HSET', Q .. 'm', 'q', fmt('%d', fence + n - 1)) end
local idle = n < limit and not cut
if cut and n < limit then out[3] = 1 end
if idle then
  local soon = NEVER
  for tier = lowest, highest do
    local first = call('ZRANGE', Q .. 'r' .. DIGIT[tier], '0', '0', 'WITHSCORES')[2]
    if first then soon = min(soon, tonumber(first)) end
  end
  if highest > 0 then
    local first = call('ZRANGE', Q .. 'a', '0', '0', 'WITHSCORES')[2]
    if first then soon = min(soon, tonumber(first)) end
  end
  local known = tonumber(m[3] or nil)
  if not known or known < soon then
    if n == 0 then call('HDEL', Q .. 'm', '-') end -- a first write that is allowed when memory is full
    call('HSET', Q .. 'm', 'i', fmt('%d', soon))
  end
  if soon < NEVER then out[3] = max(1, soon - now) end
end
if made then
  if idle then made.q.idle = nil end
  made.close(made.q)
end
return out
