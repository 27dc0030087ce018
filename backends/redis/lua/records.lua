-- lib: base records
-- Lists records by key. KEYS: the space's prefix. ARGV: limit, key to go on behind.
-- Reply: the key to go on behind ('' at the end), then key, version, expiry and
-- value of each.
local limit, last, out, weight = tonumber(ARGV[1]), ARGV[2], { '' }, 0
while true do
  local keys = call('ZRANGEBYLEX', base .. 'i', last == '' and '-' or '(' .. last, '+', 'LIMIT', 0, limit + 1)
  for _, key in ipairs(keys) do
    local r = record(key)
    if not r then
      erase(key)
    elseif #out - 1 >= 4 * limit or weight > PAGEBYTES then
      out[1] = last
      return out
    else
      local n = #out
      out[n + 1], out[n + 2], out[n + 3], out[n + 4] = key, r[1], r[2], r[4]
      weight = weight + #r[4]
      last = key
    end
  end
  if #keys <= limit then return out end
end
