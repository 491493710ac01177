package cli

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/sluice-llm/sluice/internal/proc"
)

// dry prints what a run would run.
func (o *execOptions) dry(s *streams, cfg proc.Config) error {
	var lines strings.Builder
	p, err := proc.ReadPreview(cfg, func(item proc.Planned) error {
		if o.watch.json {
			b, err := json.Marshal(item)
			lines.Write(append(b, '\n'))
			return err
		}
		words := make([]string, len(item.Command))
		for i, word := range item.Command {
			words[i] = shellQuote(word)
		}
		fmt.Fprintln(&lines, escape(strings.Join(words, " ")))
		return nil
	})
	if err != nil {
		return o.explain(err)
	}
	if _, err := s.out.Write([]byte(lines.String())); err != nil {
		return err
	}
	s.errorf("%s of %s remaining: nothing was run\n", group(p.Remaining), count(p.Items, "item"))
	for _, b := range p.Blocked {
		s.row("blocked", "%s", b)
	}
	return nil
}
