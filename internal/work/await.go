package work

import "context"

// mostAwaiting bounds how many items of a run wait in Await. Their sizes are bounded by Config.QueueBytes besides.
const mostAwaiting = 4096

// Await waits in a Handler, before its call, until ready is closed: for what becomes of another item, say. It returns nil
// then, and the cause as soon as nothing more is to be sent or ctx ends. No permit is held meanwhile, and another worker takes
// the place of the one that waits, so that it does not keep items behind it from their calls. There is room for 4,096
// items that wait so, and Config.QueueBytes of their sizes: beyond that, a lane's workers are no more than those that wait
// and 16 others.
//
// In a feed, with the context that Config.Feed was given, it waits until ready is closed or gives something. Items that the
// Runner put aside, by Config.Reload, go on meanwhile: a feed that waited for one of them in another way would wait for ever.
// What reading them again fails with is returned too, and is for the feed to give.
func Await(ctx context.Context, ready <-chan struct{}) error {
	select {
	case <-ready:
		return nil
	default:
	}
	place := ctx.Value(placeKey{})
	if r, ok := place.(*Runner); ok {
		return r.awaitInFeed(ctx, ready)
	}
	w, _ := place.(*worker)
	if w != nil {
		ctx = w.runner.wait
	}
	defer w.stepAside()()
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// awaitInFeed is Await for the feed, in whose goroutine alone items are placed.
func (r *Runner) awaitInFeed(ctx context.Context, ready <-chan struct{}) error {
	for {
		if err := r.unpark(); err != nil {
			return err
		}
		select {
		case <-ready:
			return nil
		case <-r.room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// stepAside lets another worker of the lane take this one's place, if there is room, and returns what takes it back.
func (w *worker) stepAside() (back func()) {
	if w == nil || w.phase != waiting {
		return func() {}
	}
	all := w.runner.cfg.QueueBytes
	size := min(max(int64(w.item.Size), all/mostAwaiting, 1), all) // one item has room whatever its size
	if !w.runner.awaiting.TryAcquire(size) {
		return func() {}
	}
	w.enter(aside)
	return func() {
		w.enter(waiting)
		w.runner.awaiting.Release(size)
	}
}
