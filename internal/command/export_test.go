package command

// Mark is what the commands of a run carry in SLUICE_RUN.
func (g *Guard) Mark() string { return g.run }

// Process is the number of the process that is told of groups; 0 is none.
func (g *Guard) Process() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.input == nil {
		return 0
	}
	return g.process.Pid
}
