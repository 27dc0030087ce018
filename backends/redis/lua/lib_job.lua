-- A job is a text of digits with its contents behind:
--   1 state  2 flags  3 attempt (8)  11 claimed at (16)  27 Seq (16)  43 tier
--   44 attempts (10)  54 on failure  55 on exhausted  56 scheduling
--   57 retention (16)  73 run at (16)  89 place (16)  105 finished at (16)
--   121 length of group (3)  124 of kind (3)  127 group, kind, contents
-- Most jobs are never more than published and completed. As long as nothing was done
-- to a pending job that brings nothing but its contents, and these are small, it has a
-- short text, as each byte a script touches takes time:
--   1 '0'  2 Seq (16)  18 tier  19 attempts (10)  29 on failure  30 on exhausted
--   31 scheduling  32 length of group (3)  35 of kind (3)  38 group, kind, contents
-- The state is never "running": that is so when the lane's lease in K has the job's
-- Seq, and then attempt and claimed at are the lease's.
-- Flags: 1 has failures, 2 has a result, 4 has a hash of other things, o:id, with
--   x cancel requested, d dedup key, w its states, y result, p payload, h:* and
--   H:* headers set and dropped.
-- Run at 0 is the time of the publish (the Seq); place 0 is the Seq, and 1 is
-- none yet.
-- A lane is the key of a group's line, or "{" and the member of a job without a
-- group: no key begins with a brace. A member is Seq ":" id. A lease is
--   1 'p' when completing the job removes it and nothing else  2 tier
--   3 fence of the first lease of the claim (16)  19 claimed at (16)
--   35 attempt (8)  43 nonce of the claim (20)  64 number of the lease (3)
--   68 member \n owner
-- and its token is 43 to 83, up to the end of the Seq.

local function parse(q, id, v)
  local short = byte(v) == 48
  v = whole(v)
  local glen, klen = tonumber(sub(v, 121, 123)), tonumber(sub(v, 124, 126))
  local seqs = sub(v, 27, 42)
  local j = {
    id = id, key = q.J .. id, short = short, s = tonumber(sub(v, 1, 1)), n = tonumber(sub(v, 2, 2)), a = tonumber(sub(v, 3, 10)),
    C = sub(v, 11, 26), seqs = seqs, seq = tonumber(seqs), member = seqs .. ':' .. id, t = tonumber(sub(v, 43, 43)),
    M = tonumber(sub(v, 44, 53)), F = tonumber(sub(v, 54, 54)), E = tonumber(sub(v, 55, 55)), S = tonumber(sub(v, 56, 56)),
    R = sub(v, 57, 72), r = tonumber(sub(v, 73, 88)), place = tonumber(sub(v, 89, 104)), Z = tonumber(sub(v, 105, 120)),
    g = sub(v, 127, 126 + glen), k = sub(v, 127 + glen, 126 + glen + klen),
  }
  if j.place == 0 then j.place = j.seq end
  j.lane = j.g == '' and '{' .. j.member or q.Q .. 'g' .. j.g
  if j.n >= 4 then
    local o = call('HMGET', q.O .. id, 'x', 'd', 'w')
    j.x, j.d, j.w = o[1], o[2], num(o[3])
  end
  return j
end

-- leased makes a job a running one by its lease.
local function leased(j, K)
  j.K, j.was = K, j.s
  j.s, j.a, j.C, j.owner = RUNNING, tonumber(sub(K, 35, 42)), sub(K, 19, 34), string.match(K, '\n([^\n]*)$')
end

-- load reads a job, without its contents.
local function load(q, id)
  local v = call('GETRANGE', q.J .. id, 0, 895)
  if v == '' then return nil end
  local j = parse(q, id, v)
  local K = call('HGET', q.K, j.lane)
  if K and sub(K, 68, 83) == j.seqs then leased(j, K) end
  return j
end

-- put writes the beginning of a job's text, which is a long one from then on.
local function put(j, head)
  local v = j.short and call('GET', j.key)
  j.short = false
  if v and byte(v) == 48 then
    call('SET', j.key, head .. sub(whole(v), #head + 1))
  else
    call('SETRANGE', j.key, 0, head)
  end
end

-- save writes everything but the contents. A job that no lease names is not
-- running any more.
local function save(j)
  local place = j.place == j.seq and 0 or j.place
  put(j, fmt('%d%d%08d%s%s%d%010d%d%d%d%s%016d%016d%016d', j.s, j.n, j.a, j.C, j.seqs, j.t,
    j.M, j.F, j.E, j.S, j.R, j.r, place, j.Z))
end

-- save_flags writes the flags alone, also of a running job.
local function save_flags(j)
  put(j, fmt('%d%d', j.K and j.was or j.s, j.n))
end

local function flag(j, bit)
  if floor(j.n / bit) % 2 == 0 then j.n = j.n + bit end
end

local function exhausted(j) return j.M ~= UNLIMITED and j.a >= j.M end

local function has(set, state) return floor(set / 2 ^ state) % 2 == 1 end

-- A dedup key's value is "while:until:seq:id" of its holder.
local function key_value(q, key)
  local v = call('GET', q.Q .. 'k:' .. key)
  if not v then return nil end
  local w, untl, seq, id = string.match(v, '^(%d+):(%d+):(%d+):(.*)$')
  return { w = tonumber(w), untl = tonumber(untl), seq = tonumber(seq), id = id }
end

-- holder gives who has the key: a key is taken in some states of its holder, one
-- of which is to be gone, and for some time. The second value is the job, if it is
-- still there.
local function holder(q, key)
  local h = key_value(q, key)
  if not h or h.untl ~= 0 and h.untl <= q.now then return nil end
  local j = load(q, h.id)
  if j and j.seq ~= h.seq then j = nil end
  if not has(h.w, j and j.s or GONE) then return nil end
  return h, j
end

local function take_key(q, key, while_, untl, seq, id)
  local k = q.Q .. 'k:' .. key
  call('SET', k, while_ .. ':' .. int(untl) .. ':' .. int(seq) .. ':' .. id)
  if untl ~= 0 then call('PEXPIREAT', k, int(floor(untl / 1000) + 1)) end
end

-- release_key frees the key of a job that goes, unless it is taken even then. One
-- that would be so for ever is noted, as it goes with the queue.
local function release_key(q, j)
  local h = j.d and key_value(q, j.d)
  if not h or h.seq ~= j.seq or h.id ~= j.id then return end
  if not has(j.w, GONE) then
    call('UNLINK', q.Q .. 'k:' .. j.d)
  elseif h.untl == 0 then
    call('SADD', q.Q .. 'u', j.d)
  end
end

-- unindex takes a job out of the index of its state, unless it stays there.
-- Running jobs have none.
local function unindex(q, j, state)
  if j.s ~= state and j.s ~= RUNNING then zrem(q.S .. j.s, j.member) end
end

-- set_state moves a job to a state; score orders it there. Somebody saves it.
local function set_state(q, j, state, score)
  unindex(q, j, state)
  zadd(q.S .. state, int(score), j.member)
  if j.s >= COMPLETED and state < COMPLETED then
    zrem(q.Q .. 'x', j.member)
    tally(q, j.t, 1)
  end
  j.s = state
end

-- drop removes a job that stands in no line.
local function drop(q, j)
  unindex(q, j)
  if j.s >= COMPLETED then zrem(q.Q .. 'x', j.member) else tally(q, j.t, -1) end
  unlink(j.key)
  if j.n % 2 == 1 then unlink(q.Q .. 'f:' .. j.id) end
  if j.n >= 4 then unlink(q.O .. j.id) end
  release_key(q, j)
end

local function retention(q, j, state)
  local cfg = q.cfg
  if state == DEAD then return cfg[KEEPDEAD] end
  if state == CANCELLED then return cfg[KEEPCANCEL] end
  local keep = cfg[KEEPDONE]
  if j.R == NONE then keep = 0 elseif j.R ~= ZEROS then keep = tonumber(j.R) end
  if j.n % 4 >= 2 then keep = max(keep, cfg[KEEPRESULT]) end
  return keep
end

local COUNTER = { [COMPLETED] = 'c', [DEAD] = 'd', [CANCELLED] = 'x' }

-- finish ends a job that has left its line and saves it, and tells the state
-- readers see.
local function finish(q, j, state)
  bump(q, COUNTER[state], 1)
  if j.n % 4 >= 2 then tell(q.Q .. 'w', 'f' .. j.id) end
  local keep = retention(q, j, state)
  if keep <= 0 then
    drop(q, j)
    return GONE
  end
  if j.s < COMPLETED then tally(q, j.t, -1) end
  unindex(q, j, state)
  zadd(q.S .. state, q.nows, j.member)
  zadd(q.Q .. 'x', int(min(q.now + keep, NEVER)), j.member)
  if j.x then call('HDEL', q.O .. j.id, 'x') end
  j.s, j.x, j.Z = state, nil, q.now
  save(j)
  return state
end

-- record_failure keeps the last failures of a job, five values each. Somebody
-- saves the job.
local function record_failure(q, j, text, trace, worker)
  local key = q.Q .. 'f:' .. j.id
  local n = call('RPUSH', key, j.a, q.nows, text, trace, worker)
  if n > 5 * MAXFAILURES then call('LTRIM', key, -5 * MAXFAILURES, -1) end
  flag(j, 1)
end
