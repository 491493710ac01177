package telemetry

// Redact takes secrets out of all that is not ours in r: message out of messages, and name out of ids and
// names, which may look like a key and be none.
func (r *Report) Redact(message, name func(string) string) {
	for i := range r.Failures {
		f := &r.Failures[i]
		f.Message = message(f.Message)
		for j := range f.IDs {
			f.IDs[j] = name(f.IDs[j])
		}
	}
	for i := range r.Longest {
		r.Longest[i].ID, r.Longest[i].Member = name(r.Longest[i].ID), name(r.Longest[i].Member)
	}
	r.Verdict = message(r.Verdict)
	r.Output, r.Events, r.Command = name(r.Output), name(r.Events), name(r.Command)
	r.Finish, r.Models = renamed(r.Finish, name), renamed(r.Models, name)
	if r.Run == nil {
		return
	}
	r.Run.Throttles.Said = message(r.Run.Throttles.Said)
	for i := range r.Run.Lanes {
		l := &r.Run.Lanes[i]
		l.Account, l.Lane = name(l.Account), name(l.Lane)
	}
}

func renamed(counts map[string]int, name func(string) string) map[string]int {
	to := make(map[string]int, len(counts))
	for word, n := range counts {
		to[name(word)] += n
	}
	return to
}
