package batch

import (
	"fmt"
	"time"
)

// Via is a way by which calls go.
type Via uint8

// Ways.
const (
	ViaLive     Via = iota // one by one, inside the limits of requests
	ViaBatchAPI            // together, through the providers' Batch APIs: for less, within a day
	ViaAuto                // through the Batch APIs as far as the deadline allows it, and live where that brings nothing
)

var vias = [...]string{"live", "batch-api", "auto"}

// String returns the way as flags spell it.
func (v Via) String() string {
	if int(v) < len(vias) {
		return vias[v]
	}
	return fmt.Sprintf("via(%d)", uint8(v))
}

// Batches shape the parts of a run that go through Batch APIs. The zero value is what each provider allows.
type Batches struct {
	Poll  time.Duration // longest between two looks at a batch. Default 1 min
	Grace time.Duration // how long a batch may take to be found after it was made. Default 30 s

	// Resubmit has requests submitted again whose answers the provider has lost or no longer keeps, though they were paid
	// for. Without it they are left to do, and the run ends with a *LostError. With Cancel they are given up: left to do, with
	// nothing pending of them.
	Resubmit bool

	// Cancel has the run submit nothing and call off what is pending: what is done by then is recorded.
	Cancel bool

	// LiveTime foresees how long live calls of so many requests, with so many tokens of input together, would take. ViaAuto
	// needs it where there is a deadline.
	LiveTime func(requests, tokens int) time.Duration
}
