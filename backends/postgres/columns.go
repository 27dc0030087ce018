package rotapostgres

// columns are the jobs of a batch as arrays that run in parallel. An array whose
// elements are all zero stays nil, which costs nothing; a null element is a zero.
type columns struct {
	payload                            [][]byte
	group, kind                        []string
	headers                            []*string
	priority                           []int16
	delay                              []int64
	runAt, timeout, deadline           []*int64
	retention                          []*int64
	maxAttempts                        []*int32
	onFailure, onExhausted, scheduling []*int16
}

// set puts a value into an array that is made when it is needed.
func set[T any](column *[]T, n, i int, v T) {
	if *column == nil {
		*column = make([]T, n)
	}
	(*column)[i] = v
}

// some puts a value into an array of pointers unless it is zero.
func some[T comparable](column *[]*T, n, i int, v T) {
	var zero T
	if v != zero {
		set(column, n, i, &v)
	}
}

func (p *publication) columns() *columns {
	c := &columns{}
	n := len(p.req.Jobs)
	for i := range p.req.Jobs {
		j := &p.req.Jobs[i]
		if len(j.Payload) > 0 {
			set(&c.payload, n, i, j.Payload)
		}
		if j.Group != "" {
			set(&c.group, n, i, j.Group)
		}
		if j.Kind != "" {
			set(&c.kind, n, i, j.Kind)
		}
		if len(j.Headers) > 0 {
			h := jsonText(j.Headers)
			set(&c.headers, n, i, &h)
		}
		if j.Priority != 0 {
			set(&c.priority, n, i, int16(j.Priority))
		}
		if d := j.Delay.Microseconds(); d != 0 {
			set(&c.delay, n, i, d)
		}
		if !j.RunAt.IsZero() {
			some(&c.runAt, n, i, j.RunAt.UnixMicro())
		}
		if !j.Deadline.IsZero() {
			some(&c.deadline, n, i, j.Deadline.UnixMicro())
		}
		some(&c.timeout, n, i, int64(j.Timeout))
		some(&c.retention, n, i, int64(j.Retention))
		some(&c.maxAttempts, n, i, int32(j.MaxAttempts))
		some(&c.onFailure, n, i, int16(j.OnFailure))
		some(&c.onExhausted, n, i, int16(j.OnExhausted))
		some(&c.scheduling, n, i, int16(j.Scheduling))
	}
	return c
}
