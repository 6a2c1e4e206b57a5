package measure

// Memory is what a process has of the machine's memory, in bytes.
type Memory struct {
	// RSS counts every page that the process has in memory, PSS those that it shares only in part.
	RSS int64 `json:"rssBytes"`
	PSS int64 `json:"pssBytes"`
	// Peak is the highest RSS since the process was started.
	Peak int64 `json:"peakBytes"`
	// File is the part of RSS that is the program itself and files that it has mapped: memory that the kernel can
	// take back.
	File int64 `json:"fileBytes"`
}
