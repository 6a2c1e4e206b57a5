package measure

import (
	"fmt"
	"runtime"
)

// Machine is where a benchmark ran.
type Machine struct {
	OS        string `json:"os"`
	Arch      string `json:"arch"`
	Processor string `json:"processor,omitempty"` // what it calls itself, if it can be told
	Cores     int    `json:"cores"`
	Memory    int64  `json:"memoryBytes,omitempty"` // 0 if it cannot be told
	Go        string `json:"go"`
}

// ThisMachine returns the machine that this process runs on.
func ThisMachine() Machine {
	return Machine{
		OS:        runtime.GOOS,
		Arch:      runtime.GOARCH,
		Processor: processorModel(),
		Cores:     runtime.NumCPU(),
		Memory:    totalMemory(),
		Go:        runtime.Version(),
	}
}

// String returns one line for people.
func (m Machine) String() string {
	text := fmt.Sprintf("%s/%s, %d cores", m.OS, m.Arch, m.Cores)
	if m.Processor != "" {
		text += fmt.Sprintf(" (%s)", m.Processor)
	}
	if m.Memory > 0 {
		text += fmt.Sprintf(", %d GiB of memory", (m.Memory+1<<29)>>30)
	}
	return text + ", " + m.Go
}
