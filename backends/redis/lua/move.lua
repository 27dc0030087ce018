-- lib: base queue text job line group patch running
-- Moves jobs to another state: those named, or the oldest of a state.
-- KEYS: the queue's prefix.
-- ARGV: target, from, then ids; or, when from is not 0: group, limit, rank to
--   start at.
-- Reply: for each id 0 not found, -state wrong state, 1 moved, or the id of the
-- job that has its dedup key, as far as it came; for a state: how many were moved,
-- 1 when it stopped at the limit, and the rank to go on at or -1 when it is done.
local q = open(KEYS[1])
local target, from, SCAN = tonumber(ARGV[1]), tonumber(ARGV[2]), 5000
call('HDEL', q.M, '-') -- a first write that is allowed when memory is full

-- leave takes a job out of its line, or out of waiting for it.
local function leave(j)
  if j.s >= COMPLETED then return end
  if j.g ~= '' then
    call('ZREM', q.Q .. 'a', j.member)
    step_out(q, j.lane, j.member)
  elseif target ~= PENDING then
    call('ZREM', q.R .. j.t, j.lane)
  end
end

local function redrive(j)
  if j.place == 1 then j.place = q.now end
  if exhausted(j) then j.M = j.a + 1 end
  j.r, j.Z = q.now, 0
  emit(q, 'redriven', j.id, j.g, j.k, j.a)
  set_state(q, j, PENDING, j.place)
  flush()
  local due = j.g == '' and call('ZSCORE', q.R .. j.t, j.lane)
  if due and tonumber(due) <= q.now then return save(j) end -- it keeps its turn
  join(q, j, j.place, q.now)
end

-- retake gives the job its dedup key again, or tells who has it.
local function retake(j)
  if not j.d then return nil end
  local h = holder(q, j.d)
  if h and (h.seq ~= j.seq or h.id ~= j.id) then return h.id end
  local own = key_value(q, j.d)
  if own and own.seq == j.seq and own.id == j.id and (own.untl == 0 or own.untl > q.now) then return nil end
  if has(j.w, PENDING) then take_key(q, j.d, j.w, 0, j.seq, j.id) end
end

local function unhold(j)
  if j.g == '' then return end
  local block = blocked(q, j.lane)
  if not block or sub(block, 2) ~= '1' .. j.id then return end
  if byte(block) == 49 then
    call('HSET', q.Q .. 'B', j.lane, '10')
  else
    call('HDEL', q.Q .. 'B', j.lane)
  end
  head_changed(q, j.lane)
end

local KIND = { [DEAD] = 'dead', [CANCELLED] = 'cancelled', [GONE] = 'deleted' }

local function move(id)
  local j = load(q, id)
  if not j then return 0 end
  if j.s == RUNNING then
    if target ~= CANCELLED then return -j.s end
    call('HSET', q.O .. id, 'x', '1')
    flag(j, 4)
    save_flags(j)
    special(q, j)
    tell(q.Q .. 'w', 'c' .. id)
    return 1
  end
  if j.s == target then return -j.s end
  if target == PENDING then
    local other = retake(j)
    if other then return other end
  end
  local waited = j.s < COMPLETED and j.g ~= ''
  leave(j)
  if target == PENDING then
    redrive(j)
  else
    if target == GONE then drop(q, j) else finish(q, j, target) end
    emit(q, KIND[target], j.id, j.g, j.k, j.a)
    flush()
    if waited then head_changed(q, j.lane) end
  end
  if target ~= DEAD then unhold(j) end
  return 1
end

if from == 0 then
  local out = {}
  for i = 3, #ARGV do
    if effort > EFFORT then break end
    out[i - 2] = move(ARGV[i])
  end
  close(q)
  return out
end

local group, limit, rank = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local set = from == RUNNING and index_running(q) or q.S .. from

-- wanted tells whether a job is to be moved: one that runs is asked to end once.
local function wanted(id)
  if group ~= '' then
    local v = whole(call('GETRANGE', q.J .. id, '0', '640'))
    if sub(v, 127, 126 + (tonumber(sub(v, 121, 123)) or 0)) ~= group then return false end
  end
  if from ~= RUNNING then return true end
  local j = load(q, id)
  return j and not j.x
end

local moved, more, looked, gone = 0, 0, 0, 0
for _, member in ipairs(call('ZRANGE', set, rank, rank + SCAN - 1)) do
  if effort > EFFORT then break end
  local id = sub(member, 18)
  if wanted(id) then
    if moved == limit then
      more = 1
      break
    end
    if move(id) == 1 then
      moved = moved + 1
      if from ~= RUNNING then gone = gone + 1 end
    end
  end
  looked = looked + 1
end
close(q)
local size = call('ZCARD', set)
if from == RUNNING then call('DEL', set) end
rank = rank + looked - gone
return { moved, more, (more == 1 or rank >= size) and -1 or rank }
