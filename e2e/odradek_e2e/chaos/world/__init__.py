"""The sandbox of a campaign: namespaces, links, disks, clocks and broker processes."""
