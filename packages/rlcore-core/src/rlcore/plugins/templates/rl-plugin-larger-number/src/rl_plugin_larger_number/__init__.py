"""Questions about two numbers: which one is larger?"""
