package telemetry

// Open is how many calls are watched.
func (o *OTel) Open() int {
	o.tracer.mu.Lock()
	defer o.tracer.mu.Unlock()
	return len(o.tracer.calls)
}
