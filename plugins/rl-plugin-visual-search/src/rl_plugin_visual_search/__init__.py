"""Visual search: questions about pictures, answered by an agent that looks closer with code or a zoom tool."""
