package proc

import "time"

// PaceEvery is how far apart commands begin so that what is left of each window lasts until it is reset.
func (w *Windows) PaceEvery(now time.Time) time.Duration { return w.next(now, now).Sub(now) }
