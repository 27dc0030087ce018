-- lib: base records
-- Deletes a record. KEYS: the space's prefix. ARGV: key, version or 0. Reply: 0
-- not found, -1 another version, 1 deleted.
local r = record(ARGV[1])
if not r then return 0 end
if ARGV[2] ~= '0' and ARGV[2] ~= r[1] then return -1 end
erase(ARGV[1])
return 1
