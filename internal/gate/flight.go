package gate

import (
	"math"
	"time"
)

const (
	firstRejection = 200 * time.Millisecond // initial value of flight.rejection
	minProof       = 50 * time.Millisecond  // minimum of flight.proof
	slowResponse   = 10                     // seconds: the latency before there was a response
	firstTrial     = 64                     // requests that are sent where a rate limit is known, before one was accepted
	maxTrial       = 8                      // maximum of trial while few requests were accepted
	leastVolley    = 8                      // requests that are sent within volleyTime, if few were accepted
	volleyTime     = 10 * time.Millisecond  // maximum time that a rejection usually takes
)

// flight is the requests in flight in the order in which they were sent, and the evidence that the provider accepts requests.
type flight struct {
	list
	open     int
	ends     int     // requests that have ended
	unread   int     // requests in flight of which no header has come
	unproven int     // requests in flight that are not known to be accepted
	oldest   *Ticket // the unproven request that was sent first
	accepted int     // accepted requests; halved by each pause that a rejection starts
	recent   recent

	rejection time.Duration // moving average of the time until a rejection
}

func (f *flight) add(t *Ticket) {
	f.insert(t, nil)
	if f.oldest == nil {
		f.oldest = t
	}
}

func (f *flight) remove(t *Ticket) {
	if f.oldest == t {
		f.oldest = t.next
	}
	f.list.remove(t)
}

// read notes that the headers of a request's response have come, or never will.
func (f *flight) read(t *Ticket) {
	if t.unread {
		t.unread = false
		f.unread--
	}
}

// sentBefore counts the requests in flight that were sent before an instant.
func (f *flight) sentBefore(at time.Time) (n int) {
	for t := f.head; t != nil && t.sent.Before(at); t = t.next {
		n++
	}
	return n
}

// sentWith counts the requests in flight that were granted after t and sent so soon after it that they may have arrived before it.
func (f *flight) sentWith(t *Ticket) (n int) {
	for u := f.tail; u != nil && t.sent.Sub(u.sent) < grain; u = u.prev {
		if u.ID > t.ID && u.sent.Sub(t.sent) < grain {
			n++
		}
	}
	return n
}

// proof returns the time after which a request in flight counts as accepted: rejections come fast.
func (f *flight) proof() time.Duration { return max(minProof, 2*f.rejection) }

// proven removes and returns the oldest unproven request that has been out for longer than rejections take, or nil.
func (f *flight) proven(now time.Time) *Ticket {
	t := f.oldest
	if t == nil || now.Sub(t.sent) < f.proof() {
		return nil
	}
	f.oldest = t.next
	return t
}

// usual returns the expected latency in seconds, by its moving average and the oldest request in flight; 0 is unknown.
func (f *flight) usual(now time.Time, mean float64) float64 {
	if t := f.head; t != nil {
		return max(mean, now.Sub(t.sent).Seconds())
	}
	return mean
}

// trial returns how many unproven requests may be in flight while no rate limit is known. When a limit is met, about half of them are
// rejected. The number grows slower than the number of accepted requests, so that the rejected share becomes smaller.
func trial(accepted int) int {
	if accepted <= 28 { // the power is below maxTrial
		return min(2+accepted, maxTrial)
	}
	return max(maxTrial, int(math.Pow(float64(accepted), 0.6)))
}
