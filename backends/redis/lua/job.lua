-- lib: base queue text view
-- Shows one job. KEYS: the queue's prefix. ARGV: id. Reply: a view, or nothing.
return view(open(KEYS[1]), ARGV[1]) or false
