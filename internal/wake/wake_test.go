package wake_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/internal/wake"
)

func TestInEndsByTimeByNewsAndByContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, news := time.Now(), make(chan struct{}, 1)
		if err := wake.In(t.Context(), time.Minute, nil); err != nil || time.Since(start) != time.Minute {
			t.Errorf("%v after %v, want a minute", err, time.Since(start))
		}
		wake.Up(news)
		wake.Up(news)
		if err := wake.In(t.Context(), time.Minute, news); err != nil || time.Since(start) != time.Minute {
			t.Errorf("%v after %v, want no wait", err, time.Since(start))
		}
		why := errors.New("closed")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(why)
		if err := wake.In(ctx, time.Minute, news); err != why {
			t.Errorf("%v, want the cause", err)
		}
	})
}

func TestBackoffGrowsByHalfUpToItsMaximum(t *testing.T) {
	b := wake.Backoff{Min: time.Second, Max: 3 * time.Second}
	for range 2 {
		for _, want := range []time.Duration{1000, 1500, 2250, 3000, 3000} {
			want *= time.Millisecond
			if got := b.Next(); got > want || got < want*4/5 {
				t.Errorf("%v, want at most a fifth less than %v", got, want)
			}
		}
		b.Reset()
	}
	small := wake.Backoff{Min: time.Second, Max: time.Millisecond}
	if got := small.Next(); got > time.Millisecond {
		t.Errorf("%v is above the maximum", got)
	}
}
