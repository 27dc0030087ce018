-- lib: base queue text job line group running
-- Deletes a queue, a bounded number of jobs at a time. What is left in between is
-- a sound queue.
-- KEYS: the queue's prefix. ARGV: force?, name, number of jobs.
-- Reply: -1 no queue, -2 and how many unfinished jobs it holds, 0 not done yet, 1.
local q = open(KEYS[1])
if not q.exists then return { -1 } end
local open_jobs = call('HLEN', q.K)
for state = SCHEDULED, RETRYING do open_jobs = open_jobs + call('ZCARD', q.S .. state) end
if open_jobs > 0 and ARGV[1] ~= '1' then return { -2, open_jobs } end

local budget, touched = tonumber(ARGV[3]), {}
index_running(q)

local function delete(j)
  if j.s < COMPLETED then
    if j.K then call('HDEL', q.K, j.lane) end
    if j.g == '' then
      call('ZREM', q.R .. j.t, j.lane)
    else
      call('ZREM', q.Q .. 'a', j.member)
      step_out(q, j.lane, j.member)
      touched[j.lane] = true
    end
  end
  drop(q, j)
end

for state = SCHEDULED, CANCELLED do
  local members = budget > 0 and call('ZRANGE', q.S .. state, 0, budget - 1) or {}
  for _, member in ipairs(members) do
    local j = load(q, sub(member, 18))
    if j then delete(j) else zrem(q.S .. state, member) end
  end
  budget = budget - #members
end
flush()
call('DEL', q.S .. RUNNING)
for lane in pairs(touched) do head_changed(q, lane) end
close(q)
if budget <= 0 then return { 0 } end

-- Keys that outlast their jobs and have no window.
local keys = call('SRANDMEMBER', q.Q .. 'u', CHUNK)
for _, key in ipairs(keys) do
  local h = key_value(q, key)
  if h and h.untl == 0 then unlink(q.Q .. 'k:' .. key) end
end
if #keys > 0 then call('SREM', q.Q .. 'u', unpack(keys)) end
flush()
if #keys == CHUNK then return { 0 } end

for _, prefix in ipairs(call('SMEMBERS', q.Q .. 't')) do
  call('ZREM', prefix .. 'b', ARGV[2])
  call('HDEL', prefix .. 'h', ARGV[2])
end
for _, name in ipairs({ 'm', 'c', 'i', 'a', 'x', 'e', 'T', 'K', 'B', 'D', 't' }) do unlink(q.Q .. name) end
for tier = 0, 4 do unlink(q.R .. tier) end
for state = 1, 7 do unlink(q.S .. state) end
local today = floor(q.now / DAY)
for day = today - 92, today + 1 do unlink(q.Q .. 'd:' .. int(day)) end
flush()
return { 1 }
