-- Redis writes the numbers of a command with 17 digits, which is exact for
-- microseconds but slow; Lua makes strings of them with 14, which is wrong. So
-- times go into commands and texts as int() makes them.
local call, fmt, sub, byte, floor, max, min =
  redis.call, string.format, string.sub, string.byte, math.floor, math.max, math.min

local function int(x) return fmt('%d', x) end

-- tell sends a hint. A user without the right to channels is refused; that must
-- not end the script in the middle of what it does.
local function tell(channel, message) redis.pcall('PUBLISH', channel, message) end

local function num(v) return v and tonumber(v) or nil end

local function clock()
  local t = call('TIME')
  return t[1] * 1000000 + t[2]
end

-- Changes of sorted sets and hashes and deletions are collected and sent with few
-- commands by flush(). Between two flushes nobody may add and remove one member
-- of one set, nor read what was collected.
local adds, rems, sets, dels, gone, tails = {}, {}, {}, {}, {}, {}

local function zadd(key, score, member)
  local t = adds[key]
  if not t then t = {}; adds[key] = t end
  local n = #t
  t[n + 1], t[n + 2] = score, member
end

local function zrem(key, member)
  local t = rems[key]
  if not t then t = {}; rems[key] = t end
  t[#t + 1] = member
end

local function hset(key, field, value)
  local t = sets[key]
  if not t then t = {}; sets[key] = t end
  local n = #t
  t[n + 1], t[n + 2] = field, value
end

local function hdel(key, field)
  local t = dels[key]
  if not t then t = {}; dels[key] = t end
  t[#t + 1] = field
end

local function rpush(key, member)
  local t = tails[key]
  if not t then t = {}; tails[key] = t end
  t[#t + 1] = member
end

local function unlink(key) gone[#gone + 1] = key end

-- send sends a command in pieces: unpack() of 8000 values overflows Lua's stack.
local function send(cmd, key, t)
  local n = #t
  if n == 0 then return end
  if n <= CHUNK then call(cmd, key, unpack(t)) return end
  for i = 1, n, CHUNK do call(cmd, key, unpack(t, i, min(i + CHUNK - 1, n))) end
end

-- Removals come first: they are allowed when the server's memory is full, and
-- after a script's first write all others are.
local function flush()
  for key, t in pairs(rems) do send('ZREM', key, t); rems[key] = nil end
  for key, t in pairs(dels) do send('HDEL', key, t); dels[key] = nil end
  for key, t in pairs(sets) do send('HSET', key, t); sets[key] = nil end
  for key, t in pairs(adds) do send('ZADD', key, t); adds[key] = nil end
  for key, t in pairs(tails) do send('RPUSH', key, t); tails[key] = nil end
  local n = #gone
  if n > 0 then
    for i = 1, n, CHUNK do call('UNLINK', unpack(gone, i, min(i + CHUNK - 1, n))) end
    gone = {}
  end
end
