-- lib: base queue nonce
-- Stores the jobs of one family of queues: those that publish_plain.lua does not.
-- KEYS: the family's base, then prefixes of queues and topics.
-- ARGV: nonce, retry?, all-or-nothing?, number of jobs, then for each job
--   id, flags, group, text from place 44 on (see lib_job.lua),
--   [queue (its index in KEYS or 0), topic (likewise)], [time],
--   [dedup key, while, window, conflict].
-- flags are digits: priority, own id?, kind of time (1 delay, 2 absolute), dedup?,
--   own number of attempts?, other target than the job before?, anything beside
--   the contents?, scheduling.
-- Reply: queues made, Seq of the first job, results. Results are left out when
-- all jobs went to one queue with successive Seqs.
local base = KEYS[1]
if ARGV[2] == '1' then
  local answer = recall(base, clock(), ARGV[1])
  if answer then return cmsgpack.unpack(answer) end
end

local DIGIT = { [0] = '0', '1', '2', '3', '4' } -- making texts of numbers is slow
local STORED, EXISTING, REPLACED, IDTAKEN, DUPLICATE, UNBOUND, REFUSED = 1, 2, 3, 4, 5, 6, 7

-- Queues are known by a name for the reply: an index in KEYS, or a text.
local queues, order = {}, {}

local function queue(prefix, name)
  local q = queues[prefix]
  if not q then
    q = open(prefix)
    q.name, q.groups = name, {}
    q.attempts = fmt('%010d', q.cfg[ATTEMPTS])
    queues[prefix] = q
    order[#order + 1] = q
  end
  return q
end

-- The job at hand, and where in ARGV the next one is.
local id, prio, own, timekind, dedup, attempts, beside, sched, group, rest
local target, topic, home = 0, 0, nil
local time, key, while_, window, conflict
local position

local function parse_job()
  local p = position
  local other
  id, group, rest = ARGV[p], ARGV[p + 2], ARGV[p + 3]
  prio, own, timekind, dedup, attempts, other, beside, sched = byte(ARGV[p + 1], 1, 8)
  prio, own, timekind, dedup, attempts, beside, sched =
    prio - 48, own == 49, timekind - 48, dedup == 49, attempts == 49, beside == 49, sched - 48
  p = p + 4
  if other == 49 then
    target, topic = tonumber(ARGV[p]), tonumber(ARGV[p + 1])
    home = topic == 0 and queue(KEYS[target], target)
    p = p + 2
  end
  if timekind ~= 0 then
    time = tonumber(ARGV[p])
    p = p + 1
  end
  if dedup then
    key, while_, window, conflict = ARGV[p], ARGV[p + 1], tonumber(ARGV[p + 2]), ARGV[p + 3]
    p = p + 4
  end
  position = p
end

-- until_when gives the time the job waits for, or nil when it is due.
local function until_when(q)
  if timekind == 0 then return nil end
  local at = timekind == 1 and q.now + time or time
  return at > q.now and at or nil
end

-- slow: text job line group {
-- What follows is for topics, own ids with dedup, and delays.
local ESCAPES = { ['%'] = '%25', ['{'] = '%7B', ['}'] = '%7D', [':'] = '%3A' }
local bound = {}

-- targets gives the queues of a job in the order of their names.
local function targets()
  if topic ~= 0 then
    local t = bound[topic]
    if not t then
      t = call('ZRANGE', KEYS[topic] .. 'b', '0', '-1')
      for i, name in ipairs(t) do
        t[i] = queue(base .. string.gsub(name, '[%%{}:]', ESCAPES) .. ':', name)
      end
      bound[topic] = t
    end
    if #t > 0 then return t end
  end
  if target == 0 then return {} end
  return { queue(KEYS[target], target) }
end

-- judge gives the result of a job that may not be stored, and the job to replace.
local function judge(q)
  if own and call('EXISTS', q.J .. id) == 1 then return { IDTAKEN, q.name } end
  if not dedup then return nil end
  local h, j = holder(q, key)
  if not h then return nil end
  if conflict == '1' then return { EXISTING, q.name, h.id } end
  if conflict == '2' and j and (j.s == RETRYING or j.s == DEAD or j.s == CANCELLED) then return nil end
  if conflict == '3' and j and (j.s == SCHEDULED or j.s == PENDING) then return { REPLACED, q.name, h.id }, j end
  return { DUPLICATE, q.name, h.id }
end

-- reenter gives a job that is out of line the new job's time.
local function reenter(q, j)
  local run = until_when(q)
  call('ZREM', q.Q .. 'a', j.member)
  if j.g == '' then call('ZREM', q.R .. j.t, j.lane) end
  j.r = run or q.now
  set_state(q, j, run and SCHEDULED or PENDING, run or j.seq)
  flush()
  if run and j.g ~= '' and (j.S == 0 and q.cfg[SCHED] or j.S) == JOINWHENDUE then
    save(j)
    return step_aside(q, j)
  end
  join(q, j, j.seq, q.now)
  q.groups = {}
end

-- replace gives a job the contents of the new one: it keeps its head and group.
local function replace(q, j)
  flush()
  local head = sub(whole(call('GETRANGE', j.key, '0', '119')), 1, 120)
  j.short = false
  local glen, klen = tonumber(sub(rest, 78, 80)), tonumber(sub(rest, 81, 83))
  j.k = sub(rest, 84 + glen, 83 + glen + klen)
  call('SET', j.key, head .. fmt('%03d%03d', #j.g, klen) .. j.g .. sub(rest, 84 + glen))
  local stale = {}
  if j.n >= 4 then
    for _, field in ipairs(call('HKEYS', q.O .. j.id)) do
      if field == 'p' or sub(field, 2, 2) == ':' then stale[#stale + 1] = field end
    end
  end
  if #stale > 0 then send('HDEL', q.O .. j.id, stale) end
  local lone = j.g == '' and j.s == SCHEDULED
  if lone or call('ZSCORE', q.Q .. 'a', j.member) then reenter(q, j) end
end

-- refuse_all gives the results of an all-or-nothing batch that is refused. Jobs of
-- the batch are judged against each other too.
local function refuse_all(n)
  local results, refused, ids, keys = {}, false, {}, {}

  -- verdict gives what judge would say if the jobs before were stored.
  local function verdict(q)
    if own and ids[q.Q .. id] then return { IDTAKEN, q.name } end
    local known = judge(q)
    local h = dedup and keys[q.Q .. key]
    if not h or known and known[1] == IDTAKEN then return known end
    if not has(h.w, h.s) then return nil end
    return { (conflict == '0' or conflict == '2') and DUPLICATE or EXISTING, q.name, h.id }
  end

  for i = 1, n do
    parse_job()
    local to = targets()
    local refusal = #to == 0 and { UNBOUND } or nil
    local stored = true
    for _, q in ipairs(to) do
      local v = verdict(q)
      if v then
        stored = false
        if v[1] == IDTAKEN or v[1] == DUPLICATE then refusal = v end
        break
      end
    end
    for _, q in ipairs(stored and to or {}) do
      ids[q.Q .. id] = true
      if dedup then keys[q.Q .. key] = { id = id, w = tonumber(while_), s = until_when(q) and SCHEDULED or PENDING } end
    end
    results[i] = refusal or { REFUSED }
    refused = refused or refusal
  end
  return refused and results
end

return { targets = targets, judge = judge, replace = replace, refuse_all = refuse_all, delayed = delayed, take_key = take_key }
-- }

-- enter puts the job in line and tells its tier.
local function enter(q, seqs, member, run)
  if group == '' then
    zadd(q.R .. DIGIT[prio], run and int(run) or q.nows, '{' .. member)
    hint(q, run or q.now)
    return prio
  end
  local lane = q.Q .. 'g' .. group
  local tier = q.groups[lane]
  if not tier then
    tier = num(call('HGET', q.T, lane))
    if not tier then
      tier = prio
      hset(q.T, lane, DIGIT[tier])
      zadd(q.Q .. 'i', '0', lane)
      if not blocked(q, lane) then
        local due = run or q.now - q.cfg[HEADSTART]
        zadd(q.R .. DIGIT[tier], int(due), lane)
        hint(q, due)
      end
    end
    q.groups[lane] = tier
  end
  rpush(lane, member)
  if run then slow().delayed(q, lane, run) end
  return tier
end

-- store stores the job, unless its own id is taken: then it gives nil.
local function store(q)
  local seq = max(q.seq + 1, q.now)
  local seqs = int(seq)
  local member = seqs .. ':' .. id
  local run = until_when(q)
  local aside = run and group ~= '' and (sched == 0 and q.cfg[SCHED] or sched) == JOINWHENDUE
  local state = run and SCHEDULED or (dedup or beside or #rest > LONGESTSHORT) and PENDING or 0
  -- The tier is not known yet; it is written below if it is not the priority.
  local text = seqs .. DIGIT[prio] .. (attempts and sub(rest, 1, 10) or q.attempts) .. sub(rest, 11, 13)
  if state == 0 then
    text = '0' .. text .. sub(rest, 78)
  else
    text = fmt('%d%d', state, dedup and 4 or 0) .. '00000000' .. ZEROS .. text .. sub(rest, 14, 29)
      .. (run and fmt('%016d', run) or ZEROS) .. (aside and '0000000000000001' or ZEROS) .. sub(rest, 62)
  end
  if not own then
    call('SET', q.J .. id, text)
  elseif not call('SET', q.J .. id, text, 'NX') then
    return nil
  end
  q.seq = seq
  if not q.exists then create(q) end
  local tier = prio
  if aside then
    zadd(q.Q .. 'a', int(run), member)
    hint(q, run)
  else
    tier = enter(q, seqs, member, run)
  end
  if tier ~= prio then call('SETRANGE', q.J .. id, state == 0 and 17 or 42, tier) end
  zadd(q.S .. (run and '1' or '2'), run and int(run) or seqs, member)
  tally(q, tier, 1)
  if dedup then
    call('HSET', q.O .. id, 'd', key, 'w', while_)
    slow().take_key(q, key, while_, window > 0 and q.now + window or 0, seq, id)
  end
  if q.cfg[EVENTS] > 0 then
    local glen, klen = tonumber(sub(rest, 78, 80)), tonumber(sub(rest, 81, 83))
    emit(q, 'enqueued', id, group, sub(rest, 84 + glen, 83 + glen + klen), 0)
  end
  return seq
end

local function publish()
  if home and not dedup then return store(home) or { IDTAKEN, target } end
  local to = slow().targets()
  if #to == 0 then return { UNBOUND } end
  for _, q in ipairs(to) do
    local refusal, victim = slow().judge(q)
    if refusal then
      if victim then slow().replace(q, victim) end
      return refusal
    end
  end
  local first
  for _, q in ipairs(to) do
    local seq = store(q)
    first = first or seq
  end
  if topic == 0 then return first end
  local names = {}
  for i, q in ipairs(to) do names[i] = q.name end
  return { STORED, names, first }
end

local n = tonumber(ARGV[4])
local results, first, last, plain = nil, false, nil, true
position = 5
if ARGV[3] == '1' then results = slow().refuse_all(n) end
if results then
  plain = false
else
  results, position = {}, 5
  local one
  for i = 1, n do
    parse_job()
    local r = publish()
    if plain then
      plain = type(r) == 'number' and (not one or one == target and r == last + 1)
      one, last, first = target, r, first or r
    end
    results[i] = r
  end
end
local made = {}
for _, q in ipairs(order) do
  if q.exists then
    call('HSET', q.M, 'q', int(q.seq))
    close(q)
  end
  if q.created then made[#made + 1] = q.name end
end
local answer = { made, plain and first or 0, plain and {} or results }
remember(base, clock(), ARGV[1], cmsgpack.pack(answer))
return answer
