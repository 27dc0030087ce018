-- lib: base records
-- Reads a record. KEYS: the space's prefix. ARGV: key. Reply: nothing, or
-- version, expiry, value.
local r = record(ARGV[1])
return r and { r[1], r[2], r[4] } or false
