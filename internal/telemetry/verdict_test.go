package telemetry_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/internal/telemetry"
)

func TestWhoIsHeldBackByWhatIsDeclaredIsToldSo(t *testing.T) {
	for used, word := range map[int]string{40: "Responses used only 40 % of this limit", 95: "A higher tier would help"} {
		var s script
		s.at(0, "scheduler_started", "")
		s.at(0, "limits_changed", `"lane":"m","dimension":"tpm","limit":1000,"source":"header"`)
		s.at(0, "slot_waiting", `"lane":"m","dimension":"tpm","waiting":5`)
		s.at(120_000, "slot_released", fmt.Sprintf(`"lane":"m","kind":"ok","waiting":5,"usage":{"input_tokens":%d,"output_tokens":%d}`, used*10, used*10))
		r := fromFiles(t, nil, s.Bytes())
		r.Judge(telemetry.Advice{})
		if !strings.Contains(r.Verdict, word) {
			t.Errorf("%d %%: %s", used, r.Verdict)
		}
	}
}

func TestModelsThatShareALimitAreToldOf(t *testing.T) {
	for name, c := range map[string]struct {
		other, source string
		sent          int
		told          bool
	}{
		"two models":                   {"n", "header", 20, true},
		"one model":                    {"m", "header", 20, false},
		"a limit that is configured":   {"n", "configured", 20, false},
		"models that use it by halves": {"n", "header", 500, false},
	} {
		t.Run(name, func(t *testing.T) {
			var s script
			s.at(0, "scheduler_started", "")
			for _, lane := range []string{"m", c.other} {
				s.at(0, "limits_changed", fmt.Sprintf(`"lane":%q,"dimension":"rpm","limit":600,"source":%q`, lane, c.source))
				s.at(0, "slot_waiting", fmt.Sprintf(`"lane":%q,"dimension":"rpm","waiting":5`, lane))
				for range 5 {
					s.at(0, "slot_acquired", fmt.Sprintf(`"lane":%q,"waiting":5`, lane))
					s.at(0, "throttled", fmt.Sprintf(`"lane":%q,"kind":"rate_limit","dimension":"rpm","waiting":5`, lane))
					s.at(0, "slot_released", fmt.Sprintf(`"lane":%q,"kind":"rate_limit","waiting":5`, lane))
				}
			}
			for i := range c.sent {
				for _, lane := range []string{"m", c.other} {
					s.at(i*60_000/c.sent, "slot_acquired", fmt.Sprintf(`"lane":%q,"waiting":5`, lane))
					s.at(i*60_000/c.sent, "slot_released", fmt.Sprintf(`"lane":%q,"kind":"ok","waiting":5`, lane))
				}
			}
			s.at(60_000, "slot_waiting", `"lane":"m","dimension":"rpm","waiting":5`)
			r := fromFiles(t, nil, s.Bytes())
			r.Judge(telemetry.Advice{})
			if told := strings.Contains(r.Verdict, "Several models were rate-limited, although none used half of its rpm") && strings.Contains(r.Verdict, "--rpm 600"); told != c.told {
				t.Error(r.Verdict)
			}
		})
	}
}
