-- lib: base queue text job line group
-- Acts on a group. KEYS: the queue's prefix. ARGV: group, act.
-- Reply: 0 no such group, 1 done, 2 and it made the queue, 3 no head, or the id
-- of the running job that can not be skipped.
local q = open(KEYS[1])
local lane, act = q.Q .. 'g' .. ARGV[1], ARGV[2]
local PAUSE, RESUME, HOLDIT, RELEASE, SKIPHEAD = '1', '2', '3', '4', '5' -- core.GroupAct
local tier, K, block = call('HGET', q.T, lane), call('HGET', q.K, lane), blocked(q, lane)

-- set_block writes what blocks the group.
local function set_block(paused, held)
  if paused == '0' and held == '0' then return call('HDEL', q.Q .. 'B', lane) end
  call('HSET', q.Q .. 'B', lane, paused .. held)
  q.blocks = true
end

call('HDEL', q.M, '-') -- a first write that is allowed when memory is full

local paused, held = sub(block or '0', 1, 1), sub(block or '00', 2)
if act == PAUSE or act == HOLDIT then
  create(q)
  if not tier and not block then call('ZADD', q.Q .. 'i', '0', lane) end
  if act == PAUSE then paused = '1' elseif held == '0' then held = '1' end
  set_block(paused, held)
  if tier and not K then call('ZREM', q.R .. tier, lane) end
  return q.created and 2 or 1
end
if not tier and not block then return 0 end
if act == RESUME then set_block('0', held) end
if act == RELEASE then set_block(paused, '0') end
if act == SKIPHEAD then
  if K then return sub(string.match(K, '^([^\n]*)', 68), 18) end
  local member = head_of(q, lane)
  if not member then return 3 end
  local j = load(q, sub(member, 18))
  step_out(q, lane, member)
  if j then
    finish(q, j, CANCELLED)
    emit(q, 'cancelled', j.id, j.g, j.k, j.a)
  end
end
head_changed(q, lane)
close(q)
return 1
