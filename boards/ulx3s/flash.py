def build(*a,**k): raise NotImplementedError
def flash(*a,**k): raise NotImplementedError
