-- lib: base queue line groups
-- Shows one group. KEYS: the queue's prefix. ARGV: group.
return describe(open(KEYS[1]), KEYS[1] .. 'g' .. ARGV[1]) or false
