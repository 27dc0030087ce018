package rotawatermill

import "sync/atomic"

// Stats counts what a subscriber's messages came to.
type Stats struct {
	// Delivered messages: received from a channel.
	Delivered uint64
	// Acked, Nacked and Returned say how deliveries ended: Returned are those given
	// back unhandled as the subscription closed, and messages never received.
	Acked, Nacked, Returned uint64
	// LeasesLost counts messages whose lease was lost while they were in hand.
	LeasesLost uint64
	// AcksLost counts acks that came after the lease was lost, or that the store did
	// not take before Close was over: those messages are delivered again though
	// they were handled. It is the number to watch; a longer Lease or a MaxHandling
	// that fits the handlers brings it down.
	AcksLost uint64
}

type counters struct {
	delivered, acked, nacked, returned, leasesLost, acksLost atomic.Uint64
}

func (c *counters) read() Stats {
	return Stats{
		Delivered: c.delivered.Load(), Acked: c.acked.Load(), Nacked: c.nacked.Load(), Returned: c.returned.Load(),
		LeasesLost: c.leasesLost.Load(), AcksLost: c.acksLost.Load(),
	}
}
