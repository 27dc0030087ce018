-- lib: base queue view
-- Lists jobs of a state, or of a group's line.
-- KEYS: the queue's prefix.
-- ARGV: state (0: the line of the group), group, kind, newest?, limit, score and
--   Seq to go on behind ('' at the start).
-- Reply: 0 when there is no queue; else 1, score and Seq to go on behind ('' at the
-- end), views..
local q = open(KEYS[1])
if not q.exists then return { 0 } end
local state, group, kind, newest, limit = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1', tonumber(ARGV[5])
local set = q.S .. state
local running
if state == '0' then
  -- The running job is not in the line; it is put there for the listing.
  local lane = 'g' .. group
  set, group = q.Q .. lane, ''
  local K = call('HGET', q.K, lane)
  running = K and string.match(K, '^([^\n]*)', 68)
  if running then
    local place = tonumber(call('GETRANGE', q.J .. sub(running, 18), 88, 103)) or 0
    call('ZREM', set, running) -- a first write that is allowed when memory is full
    call('ZADD', set, place == 0 and sub(running, 1, 16) or int(place), running)
  end
end
local SCAN = 2000

-- rank_behind gives the rank of the first element behind the cursor in ascending
-- order (or, for newest, of the first one at or behind it), also when the cursor's
-- own element is gone: equal scores are searched by halves.
local function rank_behind(score, seq)
  local lo, hi = call('ZCOUNT', set, '-inf', '(' .. score), call('ZCOUNT', set, '-inf', score)
  while lo < hi do
    local mid = floor((lo + hi) / 2)
    local at = tonumber(sub(call('ZRANGE', set, mid, mid)[1], 1, 16))
    if at < seq or not newest and at == seq then lo = mid + 1 else hi = mid end
  end
  return lo
end

local from, size = 0, call('ZCARD', set)
if ARGV[6] ~= '' then
  from = rank_behind(ARGV[6], tonumber(ARGV[7]))
  if newest then from = size - from end
end

local function wanted(id)
  if group == '' and kind == '' then return true end
  local v = call('GETRANGE', q.J .. id, 120, 895)
  local glen, klen = tonumber(sub(v, 1, 3)) or 0, tonumber(sub(v, 4, 6)) or 0
  return (group == '' or sub(v, 7, 6 + glen) == group) and (kind == '' or sub(v, 7 + glen, 6 + glen + klen) == kind)
end

local out, weight, looked = { 1, '', '' }, 0, 0

-- list fills out, and reports whether it came to the end.
local function list()
  while from < size do
    local page = call(newest and 'ZREVRANGE' or 'ZRANGE', set, from, from + 199, 'WITHSCORES')
    for i = 1, #page, 2 do
      if #out - 3 >= limit or weight > PAGEBYTES or looked >= SCAN then return false end
      local id = sub(page[i], 18)
      if wanted(id) then
        local v = view(q, id)
        if v then
          out[#out + 1] = v
          weight = weight + bytes(v)
        end
      end
      looked, from = looked + 1, from + 1
      out[2], out[3] = page[i + 1], sub(page[i], 1, 16)
    end
    if #page == 0 then break end
  end
  return true
end

if list() then out[2], out[3] = '', '' end
if running then call('ZREM', set, running) end
return out
