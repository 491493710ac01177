package provider

import (
	"strconv"
	"strings"
	"time"
)

// abbreviations are the short names of zones that people and programs write. Some are used for several zones (CST is
// also China's, IST also Ireland's and Israel's): they mean here what they mean in the messages of American providers.
var abbreviations = map[string]string{
	"utc": "UTC", "gmt": "UTC", "z": "UTC",
	"pt": "America/Los_Angeles", "pst": "America/Los_Angeles", "pdt": "America/Los_Angeles",
	"mt": "America/Denver", "mst": "America/Denver", "mdt": "America/Denver",
	"ct": "America/Chicago", "cst": "America/Chicago", "cdt": "America/Chicago",
	"et": "America/New_York", "est": "America/New_York", "edt": "America/New_York",
	"wet": "Europe/Lisbon", "west": "Europe/Lisbon", "bst": "Europe/London",
	"cet": "Europe/Berlin", "cest": "Europe/Berlin", "eet": "Europe/Athens", "eest": "Europe/Athens",
	"mez": "Europe/Berlin", "mesz": "Europe/Berlin", "msk": "Europe/Moscow",
	"ist": "Asia/Kolkata", "jst": "Asia/Tokyo", "kst": "Asia/Seoul", "sgt": "Asia/Singapore", "hkt": "Asia/Hong_Kong",
	"aest": "Australia/Sydney", "aedt": "Australia/Sydney", "nzst": "Pacific/Auckland", "nzdt": "Pacific/Auckland",
	"brt": "America/Sao_Paulo", "art": "America/Argentina/Buenos_Aires", "clt": "America/Santiago",
	"ast": "America/Halifax", "adt": "America/Halifax", "nst": "America/St_Johns", "ndt": "America/St_Johns",
	"akst": "America/Anchorage", "akdt": "America/Anchorage", "hst": "Pacific/Honolulu",
	"acst": "Australia/Adelaide", "acdt": "Australia/Adelaide", "awst": "Australia/Perth", "aet": "Australia/Sydney",
	"idt": "Asia/Jerusalem", "trt": "Europe/Istanbul", "gst": "Asia/Dubai", "pkt": "Asia/Karachi", "npt": "Asia/Kathmandu",
	"ict": "Asia/Bangkok", "wib": "Asia/Jakarta", "pht": "Asia/Manila", "myt": "Asia/Kuala_Lumpur", "sast": "Africa/Johannesburg",
}

// places are the names of zones in words, without the "time" or "standard time" that follows them.
var places = map[string]string{
	"pacific": "America/Los_Angeles", "mountain": "America/Denver", "central": "America/Chicago", "eastern": "America/New_York",
	"us pacific": "America/Los_Angeles", "us mountain": "America/Denver", "us central": "America/Chicago", "us eastern": "America/New_York",
	"u.s. pacific": "America/Los_Angeles", "u.s. mountain": "America/Denver", "u.s. central": "America/Chicago", "u.s. eastern": "America/New_York",
	"atlantic": "America/Halifax", "alaska": "America/Anchorage", "hawaii": "Pacific/Honolulu", "arizona": "America/Phoenix",
	"coordinated universal": "UTC", "universal": "UTC", "greenwich mean": "UTC", "greenwich": "UTC",
	"western european": "Europe/Lisbon", "central european": "Europe/Berlin", "eastern european": "Europe/Athens",
	"uk": "Europe/London", "british": "Europe/London", "london": "Europe/London", "irish": "Europe/Dublin", "moscow": "Europe/Moscow",
	"paris": "Europe/Paris", "berlin": "Europe/Berlin", "new york": "America/New_York", "los angeles": "America/Los_Angeles",
	"san francisco": "America/Los_Angeles", "california": "America/Los_Angeles", "india": "Asia/Kolkata", "indian": "Asia/Kolkata",
	"beijing": "Asia/Shanghai", "china": "Asia/Shanghai", "shanghai": "Asia/Shanghai", "hong kong": "Asia/Hong_Kong",
	"taipei": "Asia/Taipei", "singapore": "Asia/Singapore", "tokyo": "Asia/Tokyo", "japan": "Asia/Tokyo", "seoul": "Asia/Seoul",
	"korea": "Asia/Seoul", "korean": "Asia/Seoul", "israel": "Asia/Jerusalem", "sydney": "Australia/Sydney", "brasília": "America/Sao_Paulo",
	"brasilia": "America/Sao_Paulo",
}

// hanZones are the zones that are named without spaces, before a clock or behind it.
var hanZones = [...]struct{ name, zone string }{
	{"北京时间", "Asia/Shanghai"}, {"北京時間", "Asia/Shanghai"}, {"中国标准时间", "Asia/Shanghai"}, {"香港时间", "Asia/Hong_Kong"},
	{"台北時間", "Asia/Taipei"}, {"東京時間", "Asia/Tokyo"}, {"日本時間", "Asia/Tokyo"}, {"日本标准时间", "Asia/Tokyo"},
	{"한국시간", "Asia/Seoul"}, {"한국 시간", "Asia/Seoul"}, {"太平洋时间", "America/Los_Angeles"}, {"太平洋時間", "America/Los_Angeles"},
	{"美国东部时间", "America/New_York"}, {"世界标准时间", "UTC"}, {"协调世界时", "UTC"},
}

// legacy are old names of zones that not every system's database has.
var legacy = map[string]string{
	"us/pacific": "America/Los_Angeles", "us/mountain": "America/Denver", "us/central": "America/Chicago",
	"us/eastern": "America/New_York", "us/arizona": "America/Phoenix", "us/hawaii": "Pacific/Honolulu",
	"us/alaska": "America/Anchorage", "asia/calcutta": "Asia/Kolkata", "asia/saigon": "Asia/Ho_Chi_Minh",
	"asia/katmandu": "Asia/Kathmandu", "asia/rangoon": "Asia/Yangon", "europe/kiev": "Europe/Kyiv",
	"america/buenos_aires": "America/Argentina/Buenos_Aires", "prc": "Asia/Shanghai", "rok": "Asia/Seoul",
	"turkey": "Europe/Istanbul", "pst8pdt": "America/Los_Angeles", "mst7mdt": "America/Denver", "cst6cdt": "America/Chicago",
	"est5edt": "America/New_York",
}

// maxZone is longer than every name of a zone.
const maxZone = 48

// zone reads the name of a time zone: one of the database, in any case, an old name, an abbreviation, an offset
// ("GMT+2", "UTC-03:30", "+0200", "Z"), or words ("Pacific Time", "Central European Summer Time", "Tokyo").
func zone(name string) (*time.Location, bool) {
	name = strings.TrimSpace(name)
	if name == "" || len(name) > maxZone {
		return nil, false
	}
	low := asciiLower(name)
	if full, ok := abbreviations[low]; ok {
		low, name = asciiLower(full), full
	}
	if full, ok := legacy[low]; ok {
		name = full
	} else if full, ok := places[place(low)]; ok {
		name = full
	}
	if name == "UTC" {
		return time.UTC, true
	}
	if at, ok := offset(low); ok {
		return at, true
	}
	if !strings.ContainsRune(name, '/') {
		return nil, false // "Local", "Factory" and the like are no zones that a message names
	}
	for _, try := range [...]string{name, titled(low)} {
		if at, err := time.LoadLocation(try); err == nil {
			return at, true
		}
	}
	return nil, false
}

// zoneOf returns the name of the zone that words stated an instant in; "" for now's own, and for one without a name.
func zoneOf(t, now time.Time) string {
	if at := t.Location(); !t.IsZero() && at != now.Location() && at != time.Local {
		return at.String()
	}
	return ""
}

// place returns the name of a zone without the words for time behind it.
func place(low string) string {
	base, ok := strings.CutSuffix(low, " time")
	if !ok {
		return low
	}
	for _, season := range [...]string{" standard", " daylight", " summer", " daylight saving", " daylight savings", " winter"} {
		if short, ok := strings.CutSuffix(base, season); ok {
			return short
		}
	}
	return base
}

// offset reads an offset from UTC in hours, with or without minutes. Etc/GMT+5 lies west of Greenwich, GMT+5 east.
func offset(low string) (*time.Location, bool) {
	if strings.HasPrefix(low, "etc/") {
		return nil, false
	}
	s := strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(low, "utc"), "gmt"), " ")
	if len(s) < 2 || s[0] != '+' && s[0] != '-' {
		return nil, false
	}
	hours, minutes, colon := strings.Cut(s[1:], ":")
	if !colon && len(hours) == 4 {
		hours, minutes = hours[:2], hours[2:]
	}
	h, err := strconv.ParseUint(hours, 10, 8)
	m, err2 := strconv.ParseUint("0"+minutes, 10, 8)
	if err != nil || err2 != nil || h > 14 || m > 59 {
		return nil, false
	}
	east := int(h)*3600 + int(m)*60
	if s[0] == '-' {
		east = -east
	}
	return time.FixedZone("", east), true
}

// titled writes a zone's name as the database does: "america/los_angeles" as America/Los_Angeles.
func titled(low string) string {
	b := []byte(low)
	start := true
	for i, c := range b {
		if start && c >= 'a' && c <= 'z' {
			b[i] = c - 'a' + 'A'
		}
		start = c == '/' || c == '_' || c == '-'
	}
	s := string(b)
	return strings.NewReplacer("_Of_", "_of_", "_Es_", "_es_", "-Au-", "-au-", "Gmt", "GMT", "Utc", "UTC").Replace(s)
}

// asciiLower returns s with ASCII letters in lower case, so that every byte keeps its place.
func asciiLower(s string) string {
	for i := range len(s) {
		if s[i] >= 'A' && s[i] <= 'Z' {
			b := []byte(s)
			for ; i < len(b); i++ {
				if b[i] >= 'A' && b[i] <= 'Z' {
					b[i] |= 0x20
				}
			}
			return string(b)
		}
	}
	return s
}

// leadingZone reads a zone that stands before its clock, where only what begins with UTC or GMT can be told from other
// words: "UTC 17:00", "(UTC+8) 17:00".
func (c *clockReader) leadingZone() {
	start := c.i
	bracket := c.cut("(", "（")
	if !c.hanZone() {
		end := c.i
		for end < min(len(c.low), c.i+maxZone) && (isLetter(c.low[end]) || isDigit(c.low[end]) || strings.IndexByte("+-:", c.low[end]) >= 0) {
			end++
		}
		name := strings.TrimRight(c.low[c.i:end], ":")
		at, ok := zone(name)
		if !ok || !strings.HasPrefix(name, "utc") && !strings.HasPrefix(name, "gmt") {
			c.i = start
			return
		}
		c.i, c.in = end, at
	}
	if bracket {
		c.cut(")", "）")
	}
}

// hanZone reads a zone that is named without spaces.
func (c *clockReader) hanZone() bool {
	for _, z := range hanZones {
		if strings.HasPrefix(c.low[c.i:], z.name) {
			if at, ok := zone(z.zone); ok {
				c.i, c.in = c.i+len(z.name), at
				return true
			}
		}
	}
	return false
}

// zone reads the zone that follows a date or a clock, in brackets or bare. It marks the reader lost where one is named
// that nobody knows: the instant is then not stated, and to take another zone for it would be a wait of our own making.
func (c *clockReader) zone() bool {
	start := c.i
	c.word([]string{"in", "in the", "the"})
	c.skip(" ")
	if c.cut("(", "（") {
		end := strings.IndexAny(c.s[c.i:min(len(c.s), c.i+2*maxZone)], ")）")
		if end < 0 {
			c.i = start
			return false
		}
		inside := strings.TrimSpace(c.s[c.i : c.i+end])
		c.i += end
		c.cut(")", "）")
		inner := clockReader{s: inside, low: asciiLower(inside), now: c.now}
		if inner.hanZone() || inner.bareZone() { // else it is a remark: "(in 3 hours)"
			c.in, c.lost = inner.in, inner.lost
		}
		return true
	}
	if c.hanZone() || c.bareZone() {
		return true
	}
	c.i = start
	return false
}

// mostWords is how many words the name of a zone has: "Central European Summer Time".
const mostWords = 4

// bareZone reads the longest name of a zone that stands here.
func (c *clockReader) bareZone() bool {
	if c.word([]string{"local time", "your local time", "your time", "local", "heure locale", "hora local", "ortszeit", "本地时间", "当地时间"}) {
		c.in = c.now.Location()
		return true
	}
	if c.word([]string{"server time", "system time"}) {
		c.lost = true
		return true
	}
	var ends [mostWords]int
	n := 0
	for end := c.i; n < mostWords; n++ {
		from := end
		for end < min(len(c.s), c.i+maxZone) && (isLetter(c.s[end]) || isDigit(c.s[end]) || strings.IndexByte("/_+-:.", c.s[end]) >= 0 || c.s[end] >= 0x80) {
			end++
		}
		if end == from {
			break
		}
		ends[n] = end
		if end >= len(c.s) || c.s[end] != ' ' {
			n++
			break
		}
		end++
	}
	for ; n > 0; n-- {
		name := strings.TrimRight(c.s[c.i:ends[n-1]], ":-/.+")
		at, ok := zone(strings.ReplaceAll(name, "−", "-"))
		if !ok && n == 1 {
			first, second, two := strings.Cut(name, "/") // "EST/EDT"
			if at, ok = zone(first); ok && two {
				_, ok = zone(second)
			}
		}
		if ok {
			c.i, c.in = c.i+len(name), at
			return true
		}
		if n <= 2 && zoneLike(name) {
			c.i, c.lost = c.i+len(name), true
			return true
		}
	}
	return false
}

// zoneLike reports whether words that name no known zone look like one's name: "Mars/Olympus", "XYT", "Mars time".
func zoneLike(s string) bool {
	s = strings.TrimSpace(s)
	if base, ok := strings.CutSuffix(asciiLower(s), " time"); ok {
		return !strings.Contains(base, " ") && isCapital(s)
	}
	area, city, ok := strings.Cut(s, "/")
	if ok {
		return isCapital(area) && isCapital(city) && !strings.ContainsAny(s, " .:") // not "and/or", nor an address
	}
	if len(s) < 3 || len(s) > 5 || s[len(s)-1] != 'T' {
		return false
	}
	return strings.IndexFunc(s, func(r rune) bool { return r < 'A' || r > 'Z' }) < 0
}

// isCapital reports whether a name begins with a capital letter.
func isCapital(s string) bool { return s != "" && s[0] >= 'A' && s[0] <= 'Z' }
