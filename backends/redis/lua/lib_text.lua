-- whole makes a long text of a job, or the beginning of one, of a short one.
local function whole(v)
  if byte(v) ~= 48 then return v end
  return PENDINGHEAD .. sub(v, 2, 31) .. ZEROS .. ZEROS .. ZEROS .. ZEROS .. sub(v, 32)
end
