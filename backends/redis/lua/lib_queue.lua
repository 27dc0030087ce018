-- context makes what the functions below know of the queue with key prefix Q. m
-- has the fields q, p, i and C of its hash.
local function context(Q, m, now, nows)
  return {
    Q = Q, M = Q .. 'm', J = Q .. 'j:', O = Q .. 'o:', R = Q .. 'r', S = Q .. 's', K = Q .. 'K', T = Q .. 'T',
    exists = m[1], seq = num(m[1]) or 0, paused = m[2], idle = num(m[3]),
    cfg = m[4] and cmsgpack.unpack(m[4]) or CONFIG, now = now, nows = nows,
  }
end

-- open reads what is known of a queue. Its clock is the server's, but never steps
-- behind the last Seq: a clock that was set back makes delays longer, and hides no
-- group that was due already.
local function open(Q)
  local m = call('HMGET', Q .. 'm', 'q', 'p', 'i', 'C')
  local now = max(clock(), num(m[1]) or 0)
  return context(Q, m, now, int(now))
end

-- create makes the queue. A claim may have met none, and wait.
local function create(q)
  if q.exists then return end
  call('HSET', q.M, 'q', '0')
  q.exists, q.created, q.idle = true, true, NEVER
end

-- hint notes that something falls due, wake tells it to those who wait for less.
local function hint(q, due)
  if not q.due or due < q.due then q.due = due end
end

local function wake(q)
  if q.due and q.idle and (q.due <= q.now or q.due < q.idle) then
    call('HDEL', q.M, 'i')
    tell(q.Q .. 'w', 'r')
    q.idle, q.due = nil, nil
  end
end

-- blocked gives what blocks a group: "1" or "0" for paused, likewise for held, and
-- the id of the job it is held by. Few queues have any such group.
local function blocked(q, lane)
  if q.blocks == nil then q.blocks = call('EXISTS', q.Q .. 'B') == 1 end
  return q.blocks and call('HGET', q.Q .. 'B', lane)
end

-- late gives until when some job in the group's line is delayed, if any ever was.
local function late(q, lane)
  if q.lates == nil then q.lates = call('EXISTS', q.Q .. 'D') == 1 end
  return q.lates and num(call('HGET', q.Q .. 'D', lane))
end

-- Unfinished jobs are counted by tier, those of tier 0 by subtraction.
local function tally(q, tier, n)
  if tier == 0 then return end
  local t = q.tiers
  if not t then t = {}; q.tiers = t end
  t[tier] = (t[tier] or 0) + n
end

local function bump(q, counter, n)
  local t = q.stats
  if not t then t = {}; q.stats = t end
  t[counter] = (t[counter] or 0) + n
end

-- close writes what was counted and collected.
local function close(q)
  flush()
  if q.tiers then
    for tier, n in pairs(q.tiers) do
      if n ~= 0 then call('HINCRBY', q.Q .. 'c', tier, n) end
    end
    q.tiers = nil
  end
  if q.stats then
    local key = q.Q .. 'd:' .. int(floor(q.now / DAY))
    for counter, n in pairs(q.stats) do
      if call('HINCRBY', key, counter, n) == n then call('EXPIRE', key, STATSTTL) end
    end
    q.stats = nil
  end
  wake(q)
end

local function emit(q, kind, id, group, jobkind, attempt, text, worker)
  local ttl = q.cfg[EVENTS]
  if ttl <= 0 then return end
  call('XADD', q.Q .. 'e', 'MINID', '~', int(max(0, floor((q.now - ttl) / 1000))), '*',
    'k', kind, 't', q.nows, 'i', id, 'g', group, 'j', jobkind, 'a', attempt, 'e', text or '', 'w', worker or '')
end
