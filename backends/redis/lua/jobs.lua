-- lib: base queue line text view running
-- Lists jobs of a state, or of a group's line.
-- KEYS: the queue's prefix.
-- ARGV: state (0: the line of the group), group, kind, newest?, limit, score and
--   Seq to go on behind ('' at the start).
-- Reply: 0 when there is no queue; else 1, score and Seq to go on behind ('' at the
-- end), views..
local q = open(KEYS[1])
if not q.exists then return { 0 } end
local state, group, kind, newest, limit = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4] == '1', tonumber(ARGV[5])
local SCAN, PAGE = 2000, 200
local set, lane, running = q.S .. state, nil, nil
if state == RUNNING then index_running(q) end
if state == 0 then
  lane, group = q.Q .. 'g' .. group, ''
  -- The running job is not in the line; it is put there for the listing.
  running = string.match(call('HGET', q.K, lane) or '', '^([^\n]+)', 68)
  if running then
    call('LREM', lane, '1', running) -- a first write that is allowed when memory is full
    stand(q, lane, (place_of(q, running)), running)
  end
end

-- rank_behind gives the rank of the first element behind the cursor in ascending
-- order (or, for newest, of the first one at or behind it), also when the cursor's
-- own element is gone: equal scores are searched by halves.
local function rank_behind(score, seq)
  if lane then return rank_of(q, lane, tonumber(score), newest and seq or seq + 1) end
  local lo, hi = call('ZCOUNT', set, '-inf', '(' .. score), call('ZCOUNT', set, '-inf', score)
  while lo < hi do
    local mid = floor((lo + hi) / 2)
    local at = tonumber(sub(call('ZRANGE', set, mid, mid)[1], 1, 16))
    if at < seq or not newest and at == seq then lo = mid + 1 else hi = mid end
  end
  return lo
end

local from, size = 0, lane and call('LLEN', lane) or call('ZCARD', set)
if ARGV[6] ~= '' then
  from = rank_behind(ARGV[6], tonumber(ARGV[7]))
  if newest then from = size - from end
end

-- read gives members and their scores in turn.
local function read()
  if not lane then return call(newest and 'ZREVRANGE' or 'ZRANGE', set, from, from + PAGE - 1, 'WITHSCORES') end
  local first, last = from, min(from + PAGE, size) - 1
  if newest then first, last = size - 1 - last, size - 1 - first end
  local members, page = call('LRANGE', lane, first, last), {}
  for i = 1, #members do
    local member = members[newest and #members + 1 - i or i]
    page[2 * i - 1], page[2 * i] = member, int((place_of(q, member)))
  end
  return page
end

local function wanted(id)
  if group == '' and kind == '' then return true end
  local v = whole(call('GETRANGE', q.J .. id, '0', '895'))
  local glen, klen = tonumber(sub(v, 121, 123)) or 0, tonumber(sub(v, 124, 126)) or 0
  return (group == '' or sub(v, 127, 126 + glen) == group) and (kind == '' or sub(v, 127 + glen, 126 + glen + klen) == kind)
end

local out, weight, looked = { 1, '', '' }, 0, 0

-- list fills out, and reports whether it came to the end.
local function list()
  while from < size do
    local page = read()
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
if running then call('LREM', lane, '1', running) end
if state == RUNNING then call('DEL', set) end
return out
