package batch

import "time"

// What ViaAuto allows for.
const (
	// liveMargin is what live calls may take beyond what is foreseen of them.
	liveMargin = 1.1

	// longestCancel is how long a batch that is called off may go on: up to 10 minutes
	// (https://platform.openai.com/docs/api-reference/batch/cancel; the other providers name no time).
	longestCancel = 10 * time.Minute

	// leastWindow is the shortest time in which it is worth waiting for batches. No provider promises less than a day, and most
	// batches end within an hour (https://platform.claude.com/docs/en/build-with-claude/batch-processing): of a batch that
	// has less than a quarter of that, hardly anything would come back before it is called off again.
	leastWindow = 15 * time.Minute
)

// outlook is what ViaAuto decides by: what there is to do, and how long there is for it.
type outlook struct {
	left             time.Duration // until the deadline
	requests, tokens int           // without an answer yet
	live             func(requests, tokens int) time.Duration
}

// liveTime is how long so many of the requests would take live, with a margin.
func (o outlook) liveTime(requests int) time.Duration {
	if requests == 0 {
		return 0
	}
	tokens := int(float64(o.tokens) * (float64(requests) / float64(o.requests)))
	return time.Duration(liveMargin * float64(o.live(requests, tokens)))
}

// window is how long batches may take if all that they do not bring back is to be called live after them.
func (o outlook) window() time.Duration { return o.left - longestCancel - o.liveTime(o.requests) }

// first is how many of the requests are to be called live at once, and the others by batches: all, if batches would have no time
// to come back; none, if live calls can do after the batches what these leave; and else as many as live calls can do at all.
func (o outlook) first() int {
	switch {
	case o.window() >= leastWindow:
		return 0
	case o.liveTime(o.requests) <= o.left:
		return o.requests
	}
	most, over := 0, o.requests // so many can be done in time, and so many cannot
	for over-most > 1 {
		if half := most + (over-most)/2; o.liveTime(half) <= o.left {
			most = half
		} else {
			over = half
		}
	}
	return most
}

// Split is how ViaAuto divides requests with a deadline between live requests and a Batch API.
type Split struct {
	Live int           // requests that are sent live at once; the others go by batch
	Wait time.Duration // items without a result after this time are sent live; 0: batches may end after the deadline
	Time time.Duration // of all requests if they are sent live, with a margin
}

// SplitOf returns how ViaAuto divides a number of requests, with their input tokens together, that have to end within left. live
// estimates as Batches.LiveTime does.
func SplitOf(left time.Duration, requests, tokens int, live func(requests, tokens int) time.Duration) Split {
	o := outlook{left: left, requests: requests, tokens: tokens, live: live}
	w := Split{Live: o.first(), Time: o.liveTime(requests)}
	if window := o.window(); window >= leastWindow {
		w.Wait = window
	}
	return w
}

// due reports whether live calls must begin now to do in time what batches have not brought back.
func (o outlook) due() bool { return o.requests > 0 && o.window() <= 0 }

// choose decides what ViaAuto calls live at once.
func (f *viaFeed) choose() error {
	o, ok := f.outlook()
	if !ok || o.requests == 0 {
		return nil
	}
	n := o.first()
	log := f.batch.log
	switch {
	case n == o.requests:
		log.Warn("all items are sent live, because no batch can finish before the deadline",
			"requests", n, "deadline_in", o.left.Round(time.Second), "live_takes", o.liveTime(n).Round(time.Second))
		return f.turnLive()
	case n > 0:
		log.Warn("live requests cannot finish all items before the deadline: the remaining items go into batches, which may finish later",
			"live", n, "by_batch", o.requests-n, "deadline_in", o.left.Round(time.Second))
		f.live = n
	case o.window() < leastWindow:
		log.Warn("no live request can finish before the deadline: all items go into batches, which may finish later", "requests", o.requests)
	default:
		f.watches = true
		log.Info("all items go into batches; items that no batch finishes in time are sent live",
			"requests", o.requests, "live_from_in", o.window().Round(time.Second))
	}
	return nil
}

// outlook is what ViaAuto decides by; false of a run that has no deadline to keep to.
func (f *viaFeed) outlook() (outlook, bool) {
	cfg, in := &f.batch.cfg, f.batch.input
	if !f.auto || cfg.Budget.Deadline.IsZero() {
		return outlook{}, false
	}
	n, total := f.batch.progressLeft(), max(1, f.batch.Total())
	tokens := int(float64(in.tokens) * float64(n) / float64(total)) // they are taken to be alike
	return outlook{left: time.Until(cfg.Budget.Deadline.Round(0)), requests: n, tokens: tokens, live: cfg.Batches.LiveTime}, true
}

// lookEvery is how often it is looked whether live calls must begin: what was foreseen may take a while to work out.
const lookEvery = time.Second

// look has live calls begin once they need the time that is left.
func (f *viaFeed) look() error {
	if !f.watches || f.allLive || time.Since(f.looked) < lookEvery {
		return nil
	}
	f.looked = time.Now()
	o, ok := f.outlook()
	if !ok || !o.due() {
		return nil
	}
	f.batch.log.Warn("the pending batches are cancelled, and their remaining items are sent live to finish before the deadline",
		"requests", o.requests, "deadline_in", o.left.Round(time.Second), "live_takes", o.liveTime(o.requests).Round(time.Second))
	return f.turnLive()
}

// turnLive has everything called live that has no answer when its batch ends, which is soon.
func (f *viaFeed) turnLive() error {
	f.allLive = true
	clear(f.filling)
	return f.desk.Cancel()
}
