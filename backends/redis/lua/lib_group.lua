-- T has the tier of each group that has jobs in line or running, K the lease of
-- each lane that is leased, B what blocks a group, D until when it has delayed
-- jobs in line. The running job of a group is not in its line.

-- drained forgets a group without jobs, or all of it but a person's act.
local function drained(q, lane, tier, block)
  if tier then
    call('ZREM', q.R .. tier, lane)
    call('HDEL', q.T, lane)
  end
  if late(q, lane) then call('HDEL', q.Q .. 'D', lane) end
  if not block then call('ZREM', q.Q .. 'i', lane) end
end

local function set_due(q, tier, lane, due)
  call('ZADD', q.R .. tier, int(due), lane)
  hint(q, due)
end

-- run_at gives until when the job of a member is delayed.
local function run_at(q, member)
  local v = call('GETRANGE', q.J .. sub(member, 18), '0', '87')
  return byte(v) ~= 48 and tonumber(sub(v, 73, 88)) or 0
end

-- head_changed sets the due of a group whose head may be another than before,
-- other than by a settle.
local function head_changed(q, lane)
  if call('HEXISTS', q.K, lane) == 1 then return end
  local tier, block = call('HGET', q.T, lane), blocked(q, lane)
  local head = head_of(q, lane)
  if not head then return drained(q, lane, tier, block) end
  local ready = q.R .. tier
  if block then
    call('ZREM', ready, lane)
    return
  end
  local run = run_at(q, head)
  if run > q.now then return set_due(q, tier, lane, run) end
  local due = call('ZSCORE', ready, lane)
  if not due or tonumber(due) > q.now then set_due(q, tier, lane, q.now) end
end

-- delayed remembers that some job in line has a delay, so that others need not look.
local function delayed(q, lane, run)
  local d = late(q, lane)
  if not d or d < run then
    call('HSET', q.Q .. 'D', lane, int(run))
    q.lates = true
  end
end

-- join puts a job into its line at place and saves it; since is the time of
-- joining. The job has its state already.
local function join(q, j, place, since)
  j.place = place
  if j.g == '' then
    save(j)
    return set_due(q, j.t, j.lane, max(since, j.r))
  end
  local tier = num(call('HGET', q.T, j.lane))
  local first = not tier
  if first then
    tier = j.t
    call('HSET', q.T, j.lane, tier)
    call('ZADD', q.Q .. 'i', '0', j.lane)
  end
  if tier ~= j.t then
    tally(q, j.t, -1)
    tally(q, tier, 1)
    j.t = tier
  end
  save(j)
  stand(q, j.lane, place, j.member)
  if j.r > q.now then delayed(q, j.lane, j.r) end
  if not first then return head_changed(q, j.lane) end
  if blocked(q, j.lane) then return end
  local due = since
  if j.C == ZEROS then due = due - q.cfg[HEADSTART] end
  if j.r > q.now then due = j.r end
  set_due(q, tier, j.lane, due)
end

local function step_aside(q, j)
  call('ZADD', q.Q .. 'a', int(j.r), j.member)
  hint(q, j.r)
end
