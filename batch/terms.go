package batch

import (
	"time"

	"github.com/sluice-llm/sluice/provider"
)

// terms are what an item's tries are held to.
type terms struct {
	timeout  time.Duration
	check    func(id string, e provider.Endpoint, body []byte) error // nil accepts all
	feedback bool

	attempts, throttles int // see sluice.Call
}
