-- Ends leases, each by itself. No lease comes twice.
-- KEYS: the queue's prefix.
-- ARGV: nonce, retry?, number of outcomes, shape, the lane of each, the key of each
--   job; then when all just complete (shape 1, and 2 when all are of groups) what
--   the leases have at 43: nonce and '.', and the number of the last in a row that
--   has it, again and again; else for each: mark (token, ':', id, line feed), flags,
--   [delay], [error, trace], [patch]. Flags are digits: action, delay?, error?, patch?
-- Reply: a text with the state of each job as a digit, 'L' for a lost lease.
-- A script makes its functions anew in each run, so the usual way is written
-- without, and the rest makes its own when it is needed.
local call, byte, find, fmt, floor, min = redis.call, string.byte, string.find, string.format, math.floor, math.min
local argv = ARGV
local Q, n, shape = KEYS[1], tonumber(argv[3]), argv[4]
local plain, lane_at, job_at, rest = shape ~= '0', 4, 4 + n, 5 + 2 * n
local m = call('HMGET', Q .. 'm', 'q', 'p', 'i', 'C')
local t = call('TIME')
local now = t[1] * 1000000 + t[2]
local generation = floor(now / GENERATION)
if argv[2] == '1' then
  local answer = call('HGET', Q .. 'n:' .. fmt('%d', generation), argv[1]) or
    call('HGET', Q .. 'n:' .. fmt('%d', generation - 1), argv[1])
  if answer then return answer end
end
local last = tonumber(m[1] or 0)
if last > now then now = last end
local nows, cfg = fmt('%d', now), m[4] and cmsgpack.unpack(m[4]) or CONFIG
local COMPLETE, RETRY, RELEASE, SNOOZE, DEADEN, CANCEL = 49, 50, 51, 52, 53, 54

-- slow: base queue text job line group die patch {
local q = context(Q, m, now, nows)

-- free gives the lane of a group whose lease has ended its next turn.
local function free(lane, tier)
  local ready, block, l = q.R .. tier, blocked(q, lane), late(q, lane)
  if call('EXISTS', lane) == 0 then
    zrem(ready, lane)
    hdel(q.T, lane)
    if not block then zrem(q.Q .. 'i', lane) end
    if l then hdel(q.Q .. 'D', lane) end
    return
  end
  if block then
    zrem(ready, lane)
    return
  end
  local due = now
  if l and l <= now then hdel(q.Q .. 'D', lane) end -- no job is delayed any more
  if l and l > now then due = max(now, run_at(q, head_of(q, lane))) end
  zadd(ready, int(due), lane)
  hint(q, due)
end

-- postpone puts a job off by its FailurePolicy; waiting is the state of the wait.
local function postpone(j, waiting, delay)
  j.r = now + delay
  if delay == 0 then waiting = PENDING end
  set_state(q, j, waiting, delay == 0 and j.place or j.r)
  save(j)
  if j.g == '' then return waiting end
  if delay > 0 and (j.F == 0 and cfg[ONFAIL] or j.F) == SKIP then
    step_aside(q, j)
    return waiting
  end
  stand(q, j.lane, j.place, j.member)
  if delay > 0 then delayed(q, j.lane, j.r) end
  return waiting
end

local function transit(j, action, delay, text, trace, patch_at)
  if patch_at then apply_patch(q, j, patch_at) end
  if j.x and action ~= COMPLETE and action ~= DEADEN then action = CANCEL end
  local failed = action == RETRY or action == DEADEN
  if failed or text ~= '' and (action == CANCEL or action == SNOOZE) then
    record_failure(q, j, text, trace, j.owner)
  end
  if failed then bump(q, 'f', 1) end
  if action == COMPLETE then
    local state = finish(q, j, COMPLETED)
    emit(q, 'completed', j.id, j.g, j.k, j.a, '', j.owner)
    return state
  elseif action == CANCEL then
    local state = finish(q, j, CANCELLED)
    emit(q, 'cancelled', j.id, j.g, j.k, j.a, text, j.owner)
    return state
  elseif action == DEADEN or action == RETRY and exhausted(j) then
    return die(q, j, text, j.owner)
  elseif action == RETRY then
    local state = postpone(j, RETRYING, delay)
    emit(q, 'retried', j.id, j.g, j.k, j.a, text, j.owner)
    return state
  end
  j.a = j.a - 1
  local state = postpone(j, SCHEDULED, action == SNOOZE and delay or 0)
  emit(q, 'released', j.id, j.g, j.k, j.a, text, j.owner)
  return state
end

-- settle does what the fast path below does not.
local function settle(lane, id, action, delay, text, trace, patch_at)
  local j = load(q, id)
  if not j or not j.K then return 'L' end
  call('HDEL', q.K, lane) -- a first write that is allowed when memory is full
  local tier, state = sub(j.K, 2, 2), transit(j, action, delay, text, trace, patch_at)
  j.K = nil
  if j.g ~= '' then
    free(lane, tier)
  elseif state <= RETRYING then
    local due = max(now, j.r)
    zadd(q.R .. tier, int(due), lane)
    hint(q, due)
  else
    zrem(q.R .. tier, lane)
  end
  return state
end

return { q = q, settle = settle, free = free, close = close }
-- }

local leases
if n <= CHUNK then
  leases = call('HMGET', Q .. 'K', unpack(argv, lane_at + 1, lane_at + n))
else
  leases = {}
  for i = 1, n, CHUNK do
    local part = call('HMGET', Q .. 'K', unpack(argv, lane_at + i, lane_at + min(i + CHUNK - 1, n)))
    for k = 1, #part do leases[i + k - 1] = part[k] end
  end
end

-- A completed job that is not kept, in a queue without events, takes few commands
-- when it is plain.
local quick = cfg[KEEPDONE] <= 0 and cfg[EVENTS] <= 0
local careful = call('EXISTS', Q .. 'B', Q .. 'D') > 0
local states, due, ended = nil, nil, false
-- Of the jobs that end in the quick way: lanes and keys of jobs as slices of a
-- table, tallies by tier, and by tier what goes out of and into the ready sets.
local lanes, jobs, from, job_from, count = {}, {}, 0, 0, 0
local tally, away, dues, gone = nil, {}, {}, {}

-- Mostly all are alike: leases of the holder, plain, of groups of one tier that
-- have more jobs.
local function all_alike()
  local tier = leases[1] and byte(leases[1], 2)
  local back, k, p = {}, 0, rest
  local mark, last = argv[p], tonumber(argv[p + 1])
  for i = 1, n do
    local K = leases[i]
    if i > last then
      p = p + 2
      mark, last = argv[p], tonumber(argv[p + 1])
    end
    if not K or find(K, mark, 43, true) ~= 43 then return end
    local kind, t = byte(K, 1, 2)
    if kind ~= 112 or t ~= tier then return end
    back[k + 1] = nows
    k = k + 2
    back[k] = argv[lane_at + i]
  end
  if call('EXISTS', unpack(argv, lane_at + 1, lane_at + n)) ~= n then return end
  tier = tier - 48
  if tier > 0 then tally = { [tier] = n } end
  dues[tier], due = back, now
  lanes, jobs, from, job_from, count = argv, argv, lane_at, job_at, n
  return true
end

-- each_by_itself ends leases of any kind.
local function each_by_itself()
  local names, tiers = {}, {} -- groups among the quick ones
  local out, p = {}, rest
  local mark, last = nil, 0
  for i = 1, n do
    local lane, job, K = argv[lane_at + i], argv[job_at + i], leases[i]
    local action, delay, text, trace, patch_at = COMPLETE, 0, '', '', nil
    if i > last then
      mark, last = argv[p], plain and tonumber(argv[p + 1]) or i
      p = p + (plain and 2 or 1)
    end
    if not plain then
      local d, e, c
      action, d, e, c = byte(argv[p], 1, 4)
      p = p + 1
      if d == 49 then delay = tonumber(argv[p]); p = p + 1 end
      if e == 49 then text, trace = argv[p], argv[p + 1]; p = p + 2 end
      if c == 49 then
        patch_at = p
        local payload, result = byte(argv[p], 1, 2)
        p = p + 3 + payload - 48 + result - 48 + 2 * argv[p + 1] + argv[p + 2]
      end
    end
    if not K or find(K, mark, 43, true) ~= 43 then
      out[i] = 'L'
    elseif quick and action == COMPLETE and not patch_at and byte(K) == 112 then
      count = count + 1
      lanes[count], jobs[count] = lane, job
      out[i] = '8'
      local tier = byte(K, 2) - 48
      if tier > 0 then
        tally = tally or {}
        tally[tier] = (tally[tier] or 0) + 1
      end
      if byte(lane) == 123 then
        local r = away[tier]
        if not r then r = {}; away[tier] = r end
        r[#r + 1] = lane
      else
        local k = #names + 1
        names[k], tiers[k] = lane, tier
      end
    else
      out[i] = slow().settle(lane, string.sub(job, #Q + 3), action, delay, text, trace, patch_at)
      if out[i] ~= 'L' then ended = true end
    end
  end

  local groups = #names
  if groups == 0 then return table.concat(out) end
  local few = groups <= CHUNK
  local all = few and call('EXISTS', unpack(names)) == groups
  local blocks = careful and few and call('HMGET', Q .. 'B', unpack(names))
  local delays = careful and few and call('HMGET', Q .. 'D', unpack(names))
  for i = 1, groups do
    local lane, tier = names[i], tiers[i]
    if careful and (not few or blocks[i] or delays[i]) then
      slow().free(lane, tier)
    else
      local live = all or call('EXISTS', lane) == 1
      local t = live and dues or away
      local r = t[tier]
      if not r then r = {}; t[tier] = r end
      local k = #r
      if live then
        r[k + 1], r[k + 2] = nows, lane
        due = now
      else
        r[k + 1] = lane
        gone[#gone + 1] = lane
      end
    end
  end
  return table.concat(out)
end

if shape == '2' and quick and not careful and n <= CHUNK and all_alike() then
  states = string.rep('8', n)
else
  states = each_by_itself()
end

if count > 0 then
  for i = 1, count, CHUNK do
    local k = min(i + CHUNK - 1, count)
    call('HDEL', Q .. 'K', unpack(lanes, from + i, from + k))
    call('UNLINK', unpack(jobs, job_from + i, job_from + k))
  end
  for i = 1, #gone, CHUNK do
    call('HDEL', Q .. 'T', unpack(gone, i, min(i + CHUNK - 1, #gone)))
    call('ZREM', Q .. 'i', unpack(gone, i, min(i + CHUNK - 1, #gone)))
  end
  for tier, r in pairs(away) do
    for i = 1, #r, CHUNK do call('ZREM', Q .. 'r' .. tier, unpack(r, i, min(i + CHUNK - 1, #r))) end
  end
  for tier, r in pairs(dues) do
    for i = 1, #r, CHUNK do call('ZADD', Q .. 'r' .. tier, unpack(r, i, min(i + CHUNK - 1, #r))) end
  end
  for tier, k in pairs(tally or {}) do call('HINCRBY', Q .. 'c', tier, -k) end
  local key = Q .. 'd:' .. fmt('%d', floor(now / DAY))
  if call('HINCRBY', key, 'c', count) == count then call('EXPIRE', key, STATSTTL) end
end
if made then
  if due and (not made.q.due or due < made.q.due) then made.q.due = due end
  made.close(made.q)
elseif due and m[3] then
  call('HDEL', Q .. 'm', 'i')
  redis.pcall('PUBLISH', Q .. 'w', 'r')
end
if ended or count > 0 then
  local key = Q .. 'n:' .. fmt('%d', generation)
  call('HSET', key, argv[1], states)
  if call('HLEN', key) == 1 then
    call('EXPIRE', key, '60')
    call('UNLINK', Q .. 'n:' .. fmt('%d', generation - 2))
  end
end
return states
