package provider

import "github.com/sluice-llm/sluice"

// What tests look at from outside.
var (
	EndpointOf      = endpointOf
	ClassifyEvent   = classifyEvent
	Collect         = collect
	ErrCut          = errCut
	ErrEventTooLong = errEventTooLong
)

// Metered is what a meter makes of the events of a stream. If each is read by itself, none is taken for another like one before.
func Metered(e Endpoint, events []string, each bool) (u sluice.Usage, finish string, complete, failed bool) {
	m := newMeter(e)
	for _, data := range events {
		if each {
			m.before = nil
		}
		m.feed([]byte("data: " + data + "\n\n"))
	}
	u, _ = m.usage(sluice.Cost{Input: 1}, false)
	return u, m.sum.finish, m.complete(), m.fault != nil
}

// HeaderForms are the shared forms of budgets in headers, in the order in which they are looked for.
func HeaderForms() (all []HeaderForm) {
	for _, b := range budgets {
		all = append(all, b.HeaderForm)
	}
	return all
}
